"""Advice: shapes for a budget, verdicts on shapes, and best depths at the usual sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dwsweep import evidence, published_law
from dwsweep.errors import InputError
from dwsweep.evidence.words import SourceRow, words
from dwsweep.guide import export, practice
from dwsweep.guide import sources as guide_sources
from dwsweep.guide.answers import AT, BALANCED, CONSTRAINTS, BestDepth, BudgetAnswer, ShapeAnswer
from dwsweep.guide.costs import Budget, best_of
from dwsweep.guide.losses import TrainingTokens
from dwsweep.guide.question import Question, parse_shape
from dwsweep.guide.shapes import Options, named
from dwsweep.guide.sources import Source
from dwsweep.guide.training import Training
from dwsweep.interval import Interval
from dwsweep.records.record import to_dict
from dwsweep.shapes import Shape, width_at
from dwsweep.text import format_count

LITTLE = 0.05  # share of compute that a range of depths may waste
FAIR_DEPTH = 1.0  # a depth that wastes at most this percentage of compute is balanced


@dataclass(frozen=True)
class Answer:
    """Answer of one call of ``dwsweep guide``. source, source_notes: of the answers. assumptions: options with the
    tokens that a budget pays for, and what a fit's nets have. notes: remarks on the whole answer. afforded: size and
    tokens that a budget in FLOPs or hours pays for. instead: why public evidence replaces a given fit, if it does."""

    source: str
    source_notes: tuple[str, ...]
    budgets: tuple[BudgetAnswer, ...]
    verdicts: tuple[ShapeAnswer, ...]
    overview: tuple[BestDepth, ...]
    assumptions: Options
    notes: tuple[str, ...] = ()
    afforded: str | None = None
    instead: str | None = None

    def to_dict(self) -> dict[str, object]:
        """Answer as plain values, for ``--json``."""
        return to_dict(self)


def answer(
    params: Sequence[float] = (), shapes: Sequence[str] = (), *, source: Source | None = None, **asked: Any
) -> Answer:
    """Answer of ``dwsweep guide`` to ``Question(params, shapes, **asked)``. source: what ``source_of`` gives for the
    question's fit, where it is known.

    Raises:
        InputError: as ``Question``; no fit at its path, or no net that the options allow or the training pays for.
    """
    question = Question(params, shapes, **asked)
    source = source or question.source()
    if wrong := list(question.out_of_reach(source)):
        raise InputError(*wrong)
    judged = options = question.options.for_nets(source.nets)
    training, afforded = question.training, None
    if training is not None:
        found = training.affords(source, options)
        name, given = ("flops", flops) if (flops := question.flops) is not None else ("hours", question.hours)
        if wrong := list(question.unanswered(found.n_params, name, f"{given:g}", source)):
            raise InputError(*wrong)
        afforded = training.sentence(found, options)
        params, options, training = (found.n_params,), replace(options, tokens=found.tokens), found.training
        source = replace(source, tokens=TrainingTokens(found.tokens))
    budgets = tuple(budget(value, source, options, training) for value in params)
    if question.by_source:
        budgets = tuple(replace(row, by_source=sources_at(row.optimum.n_params, judged.trained)) for row in budgets)
    verdicts = tuple(verdict(*parse_shape(text), source, judged) for text in shapes)
    targets = () if budgets or verdicts else published_law.targets()
    return Answer(
        source=source.name,
        source_notes=source.notes,
        budgets=budgets,
        verdicts=verdicts,
        overview=tuple(best_depth(*target, source, options, listed=True) for target in targets),
        assumptions=options.filled,
        notes=_of_block(options, source),
        afforded=afforded,
        instead=source.instead or None,
    )


def _of_block(options: Options, source: Source) -> tuple[str, ...]:
    """Remark on shapes with the blocks of the fit's nets."""
    if options.own_block is None or (nets := source.nets) is None:
        return ()
    experts = f" that a token uses, {nets.top_k} of {nets.experts} experts" if options.idle else ""
    return (f"Shapes have the blocks of your fit's nets: {options.own_block:.3g}·d² weights in a layer{experts}",)


def exported(found: Answer, project: str) -> str:
    """Configuration of ``project`` (see export.py) for the recommended shape, else for the judged one.

    Raises:
        InputError: no shape is recommended or judged, or several are, or the project has no such block.
    """
    recommended = [(one.depth, one.width) for row in found.budgets if (one := row.recommended)]
    chosen = list(dict.fromkeys([*recommended, *((row.depth, row.width) for row in found.verdicts)]))
    refused, nets = f"{named('project')}: ", found.assumptions
    if len(chosen) > 1:
        shapes = ", ".join(f"{depth} × {width}" for depth, width in chosen)
        raise InputError(
            f"{refused}prints one configuration, and {shapes} are recommended or judged here; allowed: one size, by "
            "one source"
        )
    if not chosen:
        raise InputError(f"{refused}no shape is recommended here; give {named('params')} or {named('shapes')}")
    if nets.own_block is not None:
        allowed = f"without {named('fit')}" if nets.idle else f"with {named('mlp_ratio')} and its neighbours"
        raise InputError(
            f"{refused}the shapes here have the blocks of your fit's nets, {nets.own_block:.3g}·d² weights in a "
            f"layer; allowed {allowed}"
        )
    return export.text(_own_shape(*chosen[0], nets), project)


def best_depth(
    name: str,
    n_params: float,
    trained: tuple[int, int] | None,
    source: Source,
    options: Options,
    listed: bool = False,
) -> BestDepth:
    """Best depth and width at one size, with the GPT-3 shape for reference. options: of the block whose width it is.
    listed: as in ``columns``."""
    return BestDepth(
        name=name,
        source=source.name_at(n_params),
        n_params=n_params,
        trained_depth=trained[0] if trained else None,
        trained_width=trained[1] if trained else None,
        reach=source.reach(n_params),
        trust=guide_sources.judge(source, n_params),
        basis=source.basis(n_params),
        rivals=source.forms(n_params),
        **columns(n_params, source, options.layer_weights(n_params, source.depth(n_params)[0]), listed),
    )


def columns(
    n_params: float, source: Source, weights: float, listed: bool = False, confidence: float = 0.95
) -> dict[str, Any]:
    """Columns that ``BestDepth`` and a row of the guideline share. weights: of a layer over d². listed: the depths that
    waste little, where no best depth can be named."""
    loss = source.loss(n_params)
    depth = loss.interval(confidence)
    forms: list[float] = [loss.best_depth[0], *source.forms(n_params).values()]
    if listed and source.basis(n_params) == "range":
        near = loss.near_best(LITTLE)
        depth = Interval(None, near.depth_low, near.depth_high)
    return {
        **depth.columns("depth"),
        **depth.map(lambda layers: width_at(n_params, layers, weights), falling=True).columns("width"),
        "rival_depth_min": min(forms, default=None),
        "rival_depth_max": max(forms, default=None),
        "extrapolation_factor": source.extrapolation(n_params),
        "depth_error": source.error(n_params),
    }


def budget(n_params: float, source: Source, options: Options, training: Training | None = None) -> BudgetAnswer:
    """Answer for a budget: the optimum, the depths that are nearly as good, and shapes to build.

    training: budget of training that the size and ``options.tokens`` follow from.
    """
    optimum = best_depth(format_count(n_params), n_params, None, source, options)
    asked = Budget(n_params, source, options, training)
    candidates = asked.candidates()
    bests = {criterion: best_of(candidates, criterion) for criterion in AT}
    chosen, at_size, built = bests[options.at], bests["size"], bests["size" if options.at == "size" else BALANCED]
    if optimum.basis != "range" and at_size and built:
        trust = guide_sources.judge(source, n_params, built.depth, at_size.size.less_compute)
        optimum = replace(optimum, trust=trust)
    return BudgetAnswer(
        optimum=optimum,
        budget=n_params,
        at=options.at,
        unit=source.unit,
        near_best=asked.loss.near_best(LITTLE),
        candidates=asked.table(candidates, bests.values()),
        best=bests,
        risk=asked.risk(chosen, options.at) if chosen else None,
        built=tuple(replace(one, cost=source.loss(one.n_params).cost_of(one.depth)) for one in practice.near(n_params)),
        loss_tag=asked.loss.tag,
    )


def sources_at(n_params: float, tokens: TrainingTokens) -> tuple[SourceRow, ...]:
    """Answer of each public source at a size, by its own statement if it made one."""
    ratio = tokens.at(n_params) / n_params
    return tuple(words(source, evidence.read_populations(), n_params, ratio) for source in evidence.read())


def verdict(depth: int, width: int, source: Source, options: Options) -> ShapeAnswer:
    """Verdict on a shape, with its cost at its own size under each constraint. Balanced: wasting at most FAIR_DEPTH
    percent of compute. Too deep or too shallow: wasting more, outside the interval of the best depth; undecided inside
    it."""
    own = _own_shape(depth, width, options)
    if own.heads % (tensor := options.tensor_parallel):
        why = f"{own.heads} heads are no multiple of {named('tensor_parallel')} {tensor}"
        raise InputError(f"{named('shapes')}: {depth}x{width}; {why}")
    n_params = float(own.n_params)
    found = best_depth(f"{depth}x{width}", n_params, (depth, width), source, options)
    asked = Budget(n_params, source, options)
    candidates = asked.candidates([own])
    mine = next(one for one in candidates if (one.depth, one.width) == (depth, width))
    mine = replace(mine, costs={**mine.costs, "size": asked.loss.cost_of(depth)})
    said = "undecided"
    if mine.size.less_compute <= FAIR_DEPTH:
        said = "balanced"
    elif found.depth_high is not None and depth > found.depth_high:
        said = "too deep"
    elif found.depth_low is not None and depth < found.depth_low:
        said = "too shallow"
    return ShapeAnswer(
        optimum=found,
        depth=depth,
        width=width,
        verdict=said,
        depth_ratio=depth / found.depth,
        judged=mine,
        best={constraint: best_of(candidates, constraint) for constraint in CONSTRAINTS},
        loss_tag=asked.loss.tag,
        unit=source.unit,
    )


def _own_shape(depth: int, width: int, options: Options) -> Shape:
    """Shape with the requested block.

    Raises:
        InputError: the heads do not fit the width.
    """
    try:
        return options.shape(depth, width)
    except ValueError as error:
        raise InputError(f"{named('shapes')}: {depth}x{width}; {error}") from None
