"""Spec → runs and packs: matched shapes, seeds, learning rates, cost, ids; RUN, SKIP or DROP with the reason."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from dwsweep.checks import branch_steps, device_errors, head_errors, length_errors
from dwsweep.errors import InputError
from dwsweep.shapes import Shape, match_width
from dwsweep.spec import ExecutionSpec, ModelSpec, Spec, TrainSpec

RUN, SKIP, DROP = "RUN", "SKIP", "DROP"
UNHASHED = "unhashed"
"""Stands for the hash in every id while the data is not prepared."""

HASH_VERSION = 1  # raise it when the same settings come to mean another result


@dataclass(frozen=True)
class Run:
    """The unit of results: one shape, one seed, one learning rate, one length."""

    run_id: str
    pack_id: str
    shape: Shape
    seed: int
    learning_rate: float  # base learning rate; the parametrization resolves it
    budget: float | None  # target n_params; None where widths were given
    steps: int  # optimizer steps, warm-up and cool-down included
    tokens: int  # steps · batch_size · seq_len
    action: str  # RUN | SKIP | DROP
    reason: str  # why it is skipped or dropped, or what to know about it


@dataclass(frozen=True)
class Replica:
    """One seed and learning rate of a pack; it yields one run for each of the pack's ``branch_steps``."""

    seed: int
    learning_rate: float
    run_ids: tuple[str, ...]


@dataclass(frozen=True)
class Pack:
    """The unit of execution: one shape and the fixed list of its replicas, trained, checkpointed and resumed as one.

    ``branch_steps`` are the total steps of each finished run of a replica, ascending; the last is the full length.
    Without token branches there is one.
    """

    pack_id: str
    shape: Shape
    replicas: tuple[Replica, ...]
    branch_steps: tuple[int, ...]
    model: ModelSpec
    train: TrainSpec
    execution: ExecutionSpec
    data_hash: str

    def to_dict(self) -> dict[str, Any]:
        content = asdict(self)
        for name in ("model", "train", "execution"):
            content[name] = getattr(self, name).model_dump(mode="json")
        return content

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Pack:
        return cls(
            pack_id=content["pack_id"],
            shape=Shape(**content["shape"]),
            replicas=tuple(
                Replica(item["seed"], item["learning_rate"], tuple(item["run_ids"])) for item in content["replicas"]
            ),
            branch_steps=tuple(content["branch_steps"]),
            model=ModelSpec(**content["model"]),
            train=TrainSpec(**content["train"]),
            execution=ExecutionSpec(**content["execution"]),
            data_hash=content["data_hash"],
        )


@dataclass(frozen=True)
class DataFacts:
    """What the plan needs to know of a prepared store."""

    data_hash: str
    n_train_tokens: int
    n_validation_tokens: int
    bytes_per_token: float | None = None

    @classmethod
    def of(cls, store: Any) -> DataFacts:
        """The facts of a ``dwsweep.data.store.Store``."""
        return cls(
            store.data_hash,
            store.n_train_tokens,
            store.n_validation_tokens,
            getattr(store, "bytes_per_token", None),
        )


@dataclass(frozen=True)
class Plan:
    """Everything a sweep will do, before it does it."""

    spec: Spec
    runs: tuple[Run, ...]  # of every shape, the skipped and dropped ones too
    packs: tuple[Pack, ...]  # all with a run that is not dropped, finished packs too
    warnings: tuple[str, ...]
    data: DataFacts | None

    @property
    def waits_for_data(self) -> bool:
        """Whether ``prepare`` has not run: ids end in ``unhashed``, epochs are unknown, and nothing can be trained."""
        return self.data is None

    @cached_property
    def by_id(self) -> dict[str, Run]:
        return {run.run_id: run for run in self.runs}

    def count(self, action: str) -> int:
        return sum(run.action == action for run in self.runs)


Finished = Callable[[str], str | None] | Mapping[str, str]

_SKIP_REASONS = {
    "done": "already trained",
    "diverged": "diverged before; `--retry diverged` trains it again",
    "failed": "failed before; `--retry failed` trains it again",
    "oom": "ran out of memory before; `--retry failed` trains it again",
}


def build(spec: Spec, *, data: DataFacts | None = None, finished: Finished | None = None) -> Plan:
    """Expand a spec.

    Args:
        spec: the validated spec.
        data: facts of the prepared store; None before ``prepare``.
        finished: status of an earlier run by its id (None or absent: not there). ``done``, ``diverged``, ``failed``
            and ``oom`` are skipped; leave those out that are to be tried again.

    Raises:
        InputError: combinations that cannot be built or trained, all at once.
    """
    _check(spec, None)
    status_of: Callable[[str], str | None] = finished if callable(finished) else dict(finished or {}).get
    candidates = _shapes(spec)
    _check(spec, [shape for shape, *_ in candidates])
    data_hash = data.data_hash if data else None

    runs: list[Run] = []
    packs: list[Pack] = []
    for shape, budget, drop, note in candidates:
        lengths = branch_steps(spec, shape.n_params)
        if drop:
            runs += _dropped_runs(spec, shape, budget, lengths, drop, data_hash)
            continue
        for pack in _packs(spec, shape, lengths, data_hash):
            packs.append(pack)
            for replica in pack.replicas:
                for steps, run_id in zip(lengths, replica.run_ids, strict=True):
                    status = status_of(run_id)
                    skip = _SKIP_REASONS.get(status or "")
                    resumed = "continues from its checkpoint" if status in ("interrupted", "running") else ""
                    runs.append(
                        Run(
                            run_id=run_id,
                            pack_id=pack.pack_id,
                            shape=shape,
                            seed=replica.seed,
                            learning_rate=replica.learning_rate,
                            budget=budget,
                            steps=steps,
                            tokens=steps * spec.train.batch_size * spec.train.seq_len,
                            action=SKIP if skip else RUN,
                            reason="; ".join(part for part in (skip or resumed, note) if part),
                        )
                    )
    return Plan(spec=spec, runs=tuple(runs), packs=tuple(packs), warnings=(), data=data)


def _check(spec: Spec, shapes: Sequence[Shape] | None) -> None:
    """Refuse what cannot work; before shapes exist what concerns the grid, then what depends on their sizes."""
    errors = head_errors(spec) + device_errors(spec)
    if shapes is not None:
        errors += length_errors(spec, min(shape.n_params for shape in shapes))
    elif errors and spec.train.tokens_per_param is None:
        errors += length_errors(spec, 1)  # the lengths do not depend on the shapes: say what is wrong with them too
    if errors:
        raise InputError(*errors)


def _shapes(spec: Spec) -> list[tuple[Shape, float | None, str, str]]:
    """(shape, budget, why it is dropped or "", what to know about it or ""), depth by depth, small to large."""
    block, grid = spec.block(), spec.grid
    if grid.widths is not None:
        return [
            (block.shape(depth, width), None, "", "")
            for depth in grid.depth_values()
            for width in sorted(set(grid.widths[depth]))
        ]
    found: list[tuple[Shape, float | None, str, str]] = []
    for depth in grid.depth_values():
        matched = [(match_width(depth, b, block, grid.width_multiple), b) for b in sorted(grid.budget_values())]
        best: dict[Shape, float] = {}  # the budget that each shape is nearest to
        for shape, budget in matched:
            if shape not in best or abs(mismatch(shape, budget)) < abs(mismatch(shape, best[shape])):
                best[shape] = budget
        for shape, budget in matched:
            off = mismatch(shape, budget)
            drop = note = ""
            if best[shape] != budget:
                drop = (
                    f"same width {shape.width} as budget {best[shape]:.3g}, which is nearer; a smaller "
                    f"grid.width_multiple than {grid.width_multiple} tells them apart"
                )
            elif abs(off) > grid.max_mismatch:
                text = f"{off:+.1%} from its budget, more than max_mismatch {grid.max_mismatch:g}"
                drop, note = (f"{text} (strict_budgets)", "") if grid.strict_budgets else ("", text)
            found.append((shape, budget, drop, note))
    return found


def mismatch(shape: Shape, budget: float) -> float:
    """n_params / budget − 1."""
    return shape.n_params / budget - 1


def result_facts(spec: Spec, shape: Shape, data_hash: str | None) -> dict[str, Any]:
    """All settings that change a result, beside seed, learning rate and steps; nothing that does not.

    Sizes are in ``shape``; the length is counted in steps, however the spec gave it. How the work is carried out
    (``execution``), where files lie and how many processes prepare them are not in here, and the source of the text
    is there through the content hash of its tokens.
    """
    model, train = spec.model, spec.train
    parametrization: dict[str, Any] = {"rule": model.parametrization}
    if model.parametrization != "standard":
        parametrization["base_width"] = model.base_width
    if model.parametrization == "completep":
        parametrization["base_depth"] = model.base_depth
    names = {"batch_size", "optimizer", "betas", "epsilon", "weight_decay", "grad_clip", "schedule", "warmup_steps"}
    names |= {"precision", "eval_tokens"}
    if train.schedule == "wsd":
        names.add("cooldown_fraction")
    return {
        "version": HASH_VERSION,
        "shape": shape.to_dict(),
        "attention": model.attention,
        "parametrization": parametrization,
        "train": train.model_dump(mode="json", include=names),
        "data": data_hash,
    }


def _hash(content: Any, data_hash: str | None) -> str:
    if data_hash is None:
        return UNHASHED
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def run_id(
    spec: Spec, shape: Shape, seed: int, learning_rate: float, steps: int, data_hash: str | None, branch: bool = False
) -> str:
    """``L12-d128-h2-lr0.001-s0-<8 hex>``: the hash tells apart whatever changes the result.

    A token branch that ends before the full length has its tokens in the name too: ``…-s0-t2.1e6-<8 hex>``.
    """
    content = {"seed": seed, "learning_rate": learning_rate, "steps": steps, **result_facts(spec, shape, data_hash)}
    tokens = f"-t{steps * spec.train.batch_size * spec.train.seq_len:.4g}".replace("e+0", "e") if branch else ""
    return f"{shape.label}-lr{learning_rate:g}-s{seed}{tokens}-{_hash(content, data_hash)}"


def _packs(spec: Spec, shape: Shape, lengths: tuple[int, ...], data_hash: str | None) -> list[Pack]:
    replicas = [
        Replica(
            seed,
            rate,
            tuple(run_id(spec, shape, seed, rate, steps, data_hash, steps != lengths[-1]) for steps in lengths),
        )
        for rate in spec.grid.learning_rates
        for seed in spec.grid.seed_values()
    ]
    size = spec.execution.max_replicas or len(replicas)
    packs = []
    for start in range(0, len(replicas), size):
        members = tuple(replicas[start : start + size])
        content = {
            "replicas": [(m.seed, m.learning_rate) for m in members],
            "branch_steps": lengths,
            **result_facts(spec, shape, data_hash),
        }
        suffix = _hash(content, data_hash)
        if data_hash is None and size < len(replicas):
            suffix += f"-{start // size}"  # without a hash nothing else tells the packs of one shape apart
        packs.append(
            Pack(
                pack_id=f"{shape.label}-{suffix}",
                shape=shape,
                replicas=members,
                branch_steps=lengths,
                model=spec.model,
                train=spec.train,
                execution=spec.execution,
                data_hash=data_hash or UNHASHED,
            )
        )
    return packs


def _dropped_runs(
    spec: Spec, shape: Shape, budget: float | None, lengths: tuple[int, ...], reason: str, data_hash: str | None
) -> list[Run]:
    """Runs that are listed and never trained; the budget in the id keeps them apart from the run that is kept."""
    per_step = spec.train.batch_size * spec.train.seq_len
    return [
        Run(
            run_id=run_id(spec, shape, seed, rate, steps, data_hash, steps != lengths[-1]) + f"-dropped{budget:.3g}",
            pack_id="",
            shape=shape,
            seed=seed,
            learning_rate=rate,
            budget=budget,
            steps=steps,
            tokens=steps * per_step,
            action=DROP,
            reason=reason,
        )
        for rate in spec.grid.learning_rates
        for seed in spec.grid.seed_values()
        for steps in lengths
    ]
