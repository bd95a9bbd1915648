"""Cautions: what a plan can do but may not be meant to, one line each with its reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dwsweep.data.digests import FEWEST_HELDOUT
from dwsweep.plan.ids import unused
from dwsweep.plan.lengths import RunLengths
from dwsweep.plan.schedule import cooldown_steps
from dwsweep.plan.units import DataFacts, Run
from dwsweep.records.sweep import DROP
from dwsweep.shapes import Shape
from dwsweep.spec import Spec
from dwsweep.theory import bottlenecks

SAME_TOKENS = 0.01  # relative difference of tokens without a warning
SAME_BUDGET = 0.02  # relative miss of a budget of FLOPs by whole steps without a warning


def cautions(lengths: RunLengths, runs: Sequence[Run], data: DataFacts | None) -> tuple[str, ...]:
    """All warnings of a plan, the most consequential first."""
    spec = lengths.spec
    kept = [run for run in runs if run.action != DROP]
    shapes = list(dict.fromkeys(run.shape for run in kept))
    if not shapes:
        return ("every shape is dropped: nothing can be trained; see the reasons in the table",)
    return (
        *_held_out(spec, data),
        *_warm_up(spec, kept),
        *_grid(spec, shapes),
        *_lengths(lengths, shapes, kept),
        *_bottlenecks(shapes),
        *_epochs(kept, data),
        *_mismatches(spec, kept),
    )


def _held_out(spec: Spec, data: DataFacts | None) -> Iterator[str]:
    """Warn of too few held-out documents, in the store or within its ``train.eval_tokens``."""
    if data is None or not data.n_heldout_documents:
        return
    wanted, fewest = spec.train.eval_tokens, FEWEST_HELDOUT * data.n_validation_tokens / data.n_heldout_documents
    if data.caution:
        yield data.caution
    elif wanted is not None and wanted < fewest:
        yield (
            f"train.eval_tokens {wanted:,}: the standard errors of losses need {FEWEST_HELDOUT} held-out documents or "
            f"more, about {fewest:,.0f} tokens"
        )


def _warm_up(spec: Spec, runs: Sequence[Run]) -> Iterator[str]:
    train, shortest = spec.train, min(run.steps for run in runs)
    if train.warmup_steps >= shortest:
        yield (
            f"train.warmup_steps {train.warmup_steps:,} is not less than the {shortest:,} steps of the shortest run: "
            "the learning rate never reaches its peak"
        )
    elif train.schedule == "wsd" and train.warmup_steps > shortest - cooldown_steps(train, shortest):
        yield (
            f"train.warmup_steps {train.warmup_steps:,} reaches into the cool-down of the shortest run, which is its "
            f"last {cooldown_steps(train, shortest):,} of {shortest:,} steps and begins after the warm-up instead"
        )


def _grid(spec: Spec, shapes: Sequence[Shape]) -> Iterator[str]:
    depths, rule, n_rates = {s.depth for s in shapes}, spec.model.parametrization, len(spec.grid.learning_rates)
    if rule != "completep" and len(depths) > 1 and n_rates < 3:
        yield (
            f"model.parametrization {rule} does not carry the learning rate over depth, and the grid has {n_rates} "
            f"learning rate{'s' * (n_rates > 1)}: deep nets may look worse because they are worse tuned; use "
            "completep, or at least 3 grid.learning_rates"
        )
    if len(depths) == 1 and len(spec.grid.head_rules()) == 1:
        yield f"one depth ({min(depths)}): there is nothing to compare it with, and no transition can be fitted"
    elif 1 < len(depths) < 4:
        yield f"{len(depths)} depths: a width law needs at least three pairs of depths"
    if len(spec.grid.seed_values()) == 1:
        yield (
            "one seed: the noise of a loss can only be guessed from the roughness of the curves; 3 seeds or more "
            "measure it"
        )


def _lengths(lengths: RunLengths, shapes: Sequence[Shape], runs: Sequence[Run]) -> Iterator[str]:
    """Warn of shapes that train on different numbers of tokens, and of FLOPs that whole steps miss."""
    if lengths.common_steps is not None:
        return
    if lengths.is_budget:  # token branches have the same tokens at all shapes
        runs = [run for run in runs if run.steps == lengths.total_steps(run.shape)]
    fold = max(run.tokens for run in runs) / min(run.tokens for run in runs)
    if not lengths.is_budget:
        yield (
            f"train.tokens_per_param: tokens grow with the size, {fold:.3g}-fold over the sweep, so every curve mixes "
            "size and data; compare with sweeps of the same ratio only"
        )
        return
    yield (
        f"train.flops: tokens fall as N grows, {fold:.3g}-fold over the sweep: along N each depth has its minimum "
        "where size and tokens are in balance"
    )
    worst = max(shapes, key=lambda shape: abs(lengths.off(shape)))
    if abs(lengths.off(worst)) > SAME_BUDGET:
        yield (
            f"train.flops: whole steps miss the budget, {worst.label} by {lengths.off(worst):+.0%} with "
            f"{lengths.total_steps(worst):,}: a larger budget, or a smaller train.batch_size, comes nearer"
        )


def _bottlenecks(shapes: Sequence[Shape]) -> Iterator[str]:
    caps = {s: cap for s in shapes if (cap := bottlenecks.embedding_cap(s.width, s.vocab_size, s.embedding_rank))}
    for cap in dict.fromkeys(caps.values()):
        what = "the vocabulary of" if cap.is_vocabulary else "model.embedding_rank"
        wide = [shape for shape, own in caps.items() if own == cap]
        yield f"d_x above {what} {cap.value:,} at {_widths(wide)}: {bottlenecks.EMBEDDING_REASON}"
    small = [s for s in shapes if bottlenecks.head_below_window(s.head_size, s.seq_len)]
    if small:
        yield f"head size below the window of {small[0].seq_len} at {_widths(small)}: {bottlenecks.HEAD_SIZE_REASON}"
    heavy = [s for s in shapes if bottlenecks.embedding_share(s) > bottlenecks.EMBEDDING_SHARE_LIMIT]
    if heavy:
        yield (
            f"embeddings above {bottlenecks.EMBEDDING_SHARE_LIMIT:.0%} of all parameters at {_widths(heavy)}: "
            f"{bottlenecks.EMBEDDING_SHARE_REASON}; `fit --axis n_params_total` shows how much it matters"
        )


def _widths(shapes: Sequence[Shape]) -> str:
    """``3 shapes (d_x 1,204 to 2,040)``."""
    widths = sorted({shape.width for shape in shapes})
    span = f"{widths[0]:,}" if len(widths) == 1 else f"{widths[0]:,} to {widths[-1]:,}"
    return f"{len(shapes)} shape{'s' if len(shapes) > 1 else ''} (d_x {span})"


def _epochs(runs: Sequence[Run], data: DataFacts | None) -> Iterator[str]:
    if data is None:
        return
    longest: dict[Shape, int] = {}  # steps of the longest branch: shorter token branches do not count
    for run in runs:
        longest[run.shape] = max(longest.get(run.shape, 0), run.tokens)
    fewest, most = (pick(longest.values()) / data.n_train_tokens for pick in (min, max))
    if most <= 1:
        return
    text = (
        f"up to {max(longest.values()):,} tokens are read from a corpus of {data.n_train_tokens:,}: "
        f"{most:.1f} epochs; repeated text favours nets that memorise less"
    )
    if most > (1 + SAME_TOKENS) * fewest:
        text += f"; the shapes read it {fewest:.2g} to {most:.2g} times, so they are compared at unequal repetition"
    yield text


def _mismatches(spec: Spec, runs: Sequence[Run]) -> Iterator[str]:
    off = {run.shape: run.mismatch for run in runs if run.mismatch is not None}
    far = {shape: value for shape, value in off.items() if abs(value) > spec.grid.max_mismatch}
    if far:
        worst = max(far, key=lambda shape: abs(far[shape]))
        yield (
            f"{len(far)} shape{'s are' if len(far) > 1 else ' is'} further than max_mismatch "
            f"{spec.grid.max_mismatch:.0%} from the budget, {worst.label} by {far[worst]:+.0%}: `fit` uses the true "
            f"counts; a smaller grid.width_multiple than {spec.grid.width_multiple} comes nearer"
        )


def without_effect(arms: Sequence[Spec]) -> list[str]:
    """Warn of keys with a value of their own that another key leaves without effect in every arm."""
    found = [list(_without_effect(spec)) for spec in arms]
    return [line for line in found[0] if all(line in lines for lines in found)]


def _without_effect(spec: Spec) -> Iterator[str]:
    for part, key, needed in unused(spec):
        section = getattr(spec, part)
        value = getattr(section, key)
        if value != type(section).model_fields[key].default:
            yield f"{part}.{key} {value} has no effect: it belongs to {needed}"
