"""Advice: shapes for a budget, a verdict on a shape, and a verdict on a rule of thumb over all sizes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from dwsweep import evidence, published_law
from dwsweep.cost.arithmetic import training_flops_per_token
from dwsweep.cost.duration import ASSUMED, MEASURED, Calibration
from dwsweep.errors import InputError, argument, either
from dwsweep.evidence.words import compares_at_scale, words
from dwsweep.fit.laws import AS_PRINTED, Law, published
from dwsweep.guide import export, practice
from dwsweep.guide import sources as guide_sources
from dwsweep.guide.answers import (
    CONSTRAINTS,
    Answer,
    Assumptions,
    BestDepth,
    BudgetAnswer,
    BuiltModel,
    Candidate,
    NoBest,
    RuleAnswer,
    RuleRow,
    ShapeAnswer,
    SourceNote,
    SourceRow,
)
from dwsweep.guide.costs import LAYER_SECONDS, Budget, best_of, thinned, training_seconds, with_one
from dwsweep.guide.losses import TOKENS_PER_PARAM, Predicted, Tokens
from dwsweep.guide.practice import Rule
from dwsweep.guide.shapes import Options, block_params, counted, matched, shapes_near, usual_shape
from dwsweep.guide.sources import FORMS_AGREE, LARGEST, Source, fitted_source, public_source, published_source
from dwsweep.shapes import LARGEST_SIZE, STANDARD, Shape, are_other_blocks, width_at
from dwsweep.text import format_count

if TYPE_CHECKING:
    from dwsweep.records.fit import TrainedNets

Parsed = TypeVar("Parsed")

LEAST_OF_A_FIT, LEAST_PUBLIC = 1e3, 1e5  # smallest budgets: with a fit, and with public evidence
SMALLEST_AFFORDED, LARGEST_AFFORDED = 1e5, 1e13
TOLERANCES = (0.01, 0.05, 0.1)  # shares of compute
LITTLE = 0.05  # share of compute that a range of depths or a rule of thumb may waste
BALANCED = 1.0  # a shape that wastes at most this percentage of compute is balanced
PARALLEL = 8  # divisor of depth and heads of a default shape, if such a shape exists
# usual names of models by all parameters; share of embeddings above which the count matters
USUAL_TOTALS = (
    *(14e6, 70e6, 100e6, 110e6, 117e6, 124e6, 125e6, 130e6, 135e6, 150e6, 160e6, 200e6, 250e6, 300e6, 345e6, 350e6),
    *(
        355e6,
        360e6,
        400e6,
        410e6,
        500e6,
        600e6,
        700e6,
        760e6,
        774e6,
        1e9,
        1.1e9,
        1.2e9,
        1.3e9,
        1.4e9,
        1.5e9,
        1.6e9,
        1.7e9,
    ),
)
MUCH_EMBEDDED = 0.1
DEEPER_THAN_WIDE = 4  # ratio of depth to width above which a shape counts as exchanged
SIZED = (("params", None), ("flops", None), ("hours", None), ("shapes", "--shape"), ("rules", "--rule"))
RULE_SIZES = tuple(np.geomspace(1e7, 1e12, 11))


def answer(
    params: Sequence[float] = (),
    shapes: Sequence[str] = (),
    *,
    rules: Sequence[str] = (),
    fit: str | Path | None = None,
    compare: bool = False,
    law: str | None = None,
    flops: float | None = None,
    hours: float | None = None,
    by_source: bool = False,
    options: Options | None = None,
    source: Source | None = None,
) -> Answer:
    """Answer of ``dwsweep guide``.

    Args:
        params: budgets. shapes: ``96x12288``. rules: of thumb, see practice.py. None of them: the GPT-3 sizes.
        flops, hours: budget of training on ``options.device``, which determines parameters and tokens.
        fit: a fit's directory or fit.json; None: public evidence. compare: the fit and the published law, side by side.
        law: ``levine2020``, the published law in place of the evidence. by_source: adds the answer of each public
        source. options: constraints on the shapes. source: what ``fitted_source`` gives for ``fit``, where it is known.

    Raises:
        InputError: invalid numbers, shapes or rules, or no fit at ``fit``; all errors at once.
    """
    chosen = options or Options()
    least = LEAST_OF_A_FIT if fit is not None else LEAST_PUBLIC
    errors = [
        f"{argument('params')}: {value:g}; must be at least {least:g} (and at most 1e30) non-embedding parameters"
        for value in params
        if not (least <= value <= 1e30)
    ]
    if compare and fit is None:
        errors.append(
            f"{argument('compare')}: compares a fit of your own with the published law; allowed with {argument('fit')}"
        )
    if law not in (None, published_law.SHORT):
        errors.append(f"{argument('law')}: {law!r}; allowed: {published_law.SHORT}")
    elif law is not None and fit is not None:
        errors.append(f"{argument('law')}: {law}; replaces a fit; both: {argument('compare')}")
    if law is None:
        errors += [
            _too_large("params", None, format_count(value)) for value in params if LARGEST * AS_PRINTED < value <= 1e30
        ]
    errors += _wrong_budget(params, flops, hours, chosen)
    if by_source and not (params or flops or hours):
        errors.append(
            f"{argument('sources')}: lists answers at a size; allowed with one of {argument('params')}, "
            f"{argument('flops')}, {argument('hours')}"
        )
    if rules and chosen.total:
        errors.append(
            f"{argument('total')}: a rule is judged by weights of the blocks, without embeddings; not allowed with "
            f"{argument('rules', '--rule')}"
        )
    if chosen.tokens is not None and chosen.tokens_per_param != TOKENS_PER_PARAM:
        errors.append(
            f"{argument('tokens')}, {argument('tokens_per_param')}: both determine the tokens; allowed: one of them"
        )
    if not (params or shapes or rules or flops or hours) and (given := chosen.given):
        of = ", ".join(argument(name, "--bench" if name == "calibration" else None) for name in given)
        sizes = ", ".join(argument(name, option) for name, option in SIZED)
        errors.append(f"{of}: has no effect without a size; allowed with one of {sizes}")
    parsed, parsed_rules = _parsed(parse_shape, shapes, errors), _parsed(_parse_rule, rules, errors)
    if law is None:
        large = [(depth, width) for depth, width in parsed if 12.0 * depth * width**2 > LARGEST * AS_PRINTED]
        errors += [_too_large("shapes", "--shape", f"{depth}x{width}") for depth, width in large]
    if errors:
        raise InputError(*errors)
    tokens = Tokens(chosen.tokens, chosen.tokens_per_param)
    if fit is not None:
        sources = [source or fitted_source(fit, tokens)]
    else:
        sources = [published_source() if law else public_source(tokens)]
    if compare and fit is not None:
        sources.append(published_source())
    chosen = chosen.for_nets(sources[0].nets)
    afforded = None
    if flops is not None or hours is not None:
        size, spent = affordable(flops, hours, sources[0], chosen)
        afforded = _afforded(size, spent, flops, hours, chosen)
        if law is None and size > LARGEST * AS_PRINTED:
            raise InputError(_too_large(*(("flops", None, f"{flops:g}") if flops else ("hours", None, f"{hours:g}"))))
        params, chosen = (size,), replace(chosen, tokens=spent)
        sources = [
            replace(one, inside=replace(one.inside, tokens=spent)) if one.inside is not None else one for one in sources
        ]
    asked = params or parsed or parsed_rules
    budgets = tuple(budget(value, source, chosen) for value in params for source in sources)
    if by_source:
        budgets = tuple(replace(row, by_source=sources_at(row.optimum.n_params, tokens)) for row in budgets)
    verdicts = tuple(verdict(*shape, source, chosen) for shape in parsed for source in sources)
    overview = (
        ()
        if asked
        else tuple(
            best_depth(name, n, shape, s.at(n), chosen) for name, n, shape in published_law.targets() for s in sources
        )
    )
    judgements = tuple(judged(rule, source, chosen) for rule in parsed_rules for source in sources)
    measured = chosen.calibration
    return Answer(
        sources=tuple(SourceNote(source.name, source.notes) for source in sources),
        budgets=budgets,
        verdicts=verdicts,
        overview=overview,
        rules=judgements,
        assumptions=Assumptions(
            decode_seconds_per_layer=LAYER_SECONDS,
            device=chosen.device_name,
            devices=chosen.devices,
            vocabulary=chosen.vocabulary,
            context=chosen.positions,
            training_rate=MEASURED if measured else ASSUMED,
            training_distance=_farthest(measured, (*budgets, *verdicts)),
            training_device=measured.device_kind if measured else chosen.device_name,
            tokens=chosen.tokens,
        ),
        notes=(
            *([guide_sources.NEWER_DATA] if any(isinstance(source.law, Law) for source in sources) else []),
            *_other_block(budgets, verdicts, judgements, sources[0].nets),
        ),
        afforded=afforded,
        instead=sources[0].instead or None,
    )


def _other_block(
    budgets: Sequence[BudgetAnswer],
    verdicts: Sequence[ShapeAnswer],
    rules: Sequence[RuleAnswer],
    nets: TrainedNets | None,
) -> Iterator[str]:
    """Remark on shapes whose blocks have other weights than the nets of the fit that guides."""
    shapes: list[tuple[float, float, float]] = [
        (one.n_params, one.depth, one.width) for row in budgets if (one := row.recommended)
    ]
    shapes += [(row.optimum.n_params, row.depth, row.width) for row in verdicts]
    shapes += [(row.n_params, row.depth, row.width) for one in rules for row in one.rows if row.depth and row.width]
    if not shapes or nets is None or nets.layer_weights is None:
        return
    n_params, depth, width = shapes[0]
    here = n_params / (depth * width**2)
    if are_other_blocks(here, nets.layer_weights):
        yield (
            f"The nets of your fit have {nets.layer_weights:.3g}·d² weights in a layer, the shapes here {here:.3g}·d²: "
            f"{either(argument('mlp_ratio'))} and its neighbours set the block"
        )


def _too_large(name: str, option: str | None, given: str) -> str:
    """Line that refuses a size beyond all evidence."""
    of_law = argument("law")
    return (
        f"{argument(name, option)}: {given}; must be at most {format_count(LARGEST)} non-embedding parameters: no "
        f"shapes were compared beyond 15B and no law was published beyond {format_count(LARGEST)}"
        + (f" (allowed: {of_law} {published_law.SHORT}, to 1.2T)" if name == "params" else "")
    )


def _wrong_budget(params: Sequence[float], flops: float | None, hours: float | None, options: Options) -> list[str]:
    """Errors of a training budget in ``flops`` or ``hours``."""
    errors = []
    if flops is not None and hours is not None:
        errors.append(f"{argument('hours')}: a budget is in FLOPs or in hours; allowed: one of them")
    for name, value in (("flops", flops), ("hours", hours)):
        if value is not None and not 0.0 < value < math.inf:
            errors.append(f"{argument(name)}: {value:g}; must be above 0")
        elif value is not None and params:
            errors.append(f"{argument(name)}: {value:g}; stands in place of {argument('params')}; allowed: one of them")
    if (flops or hours) and options.total:
        said = "defines the count of parameters; allowed with"
        errors.append(f"{argument('total')}: {said} {argument('params')}")
    return errors


def affordable(flops: float | None, hours: float | None, source: Source, options: Options) -> tuple[float, float]:
    """Parameters of the blocks and tokens that training with ``flops``, or for ``hours``, pays for at the best depth.

    Result: the N at which tokens(N) × cost of a token = budget, with the cost of the best shape of N.

    Raises:
        InputError: neither a size from SMALLEST_AFFORDED to LARGEST_AFFORDED.
    """
    tokens = Tokens(options.tokens, options.tokens_per_param)

    def short(ln_n: float) -> float:
        n = math.exp(ln_n)
        # outside the source's depths the shape hardly matters
        depth = source.at(n).law.depth(n)[0] or 1.0
        shape = matched(max(1, round(depth)), n, options)
        trained = tokens.at(n) * n / shape.n_params  # no width meets every size
        if flops is not None:
            return math.log(training_flops_per_token(shape) * trained / flops)
        seconds = training_seconds(shape, options) * trained / options.devices
        return math.log(seconds / (3600.0 * (hours or 0.0)))

    low, high = (math.log(n) for n in (SMALLEST_AFFORDED, LARGEST_AFFORDED))
    if short(low) > 0 or short(high) < 0:
        name, value = ("flops", flops) if flops is not None else ("hours", hours)
        raise InputError(
            f"{argument(name)}: {value:g}; pays for no net from {format_count(SMALLEST_AFFORDED)} to "
            f"{format_count(LARGEST_AFFORDED)} parameters on {tokens}"
        )
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if short(middle) < 0 else (low, middle)
    n = float(f"{math.exp(low):.3g}")
    return n, tokens.at(n)


def _afforded(size: float, tokens: float, flops: float | None, hours: float | None, options: Options) -> str:
    paid = f"{flops:.3g} FLOPs" if flops is not None else f"{hours:g} hours on {options.device}"
    why = "as asked" if options.tokens is not None else f"{options.tokens_per_param:g} for each parameter"
    if options.tokens is None and options.tokens_per_param == TOKENS_PER_PARAM:
        why += ", compute-optimal by Hoffmann et al. 2022"
    return f"{paid} pay for {format_count(size)} parameters in the blocks on {format_count(tokens)} tokens ({why})"


def _farthest(calibration: Calibration | None, rows: Sequence[BudgetAnswer | ShapeAnswer]) -> float | None:
    """Largest factor in depth or width between a recommended shape and the nearest benchmarked one."""
    if calibration is None:
        return None
    shapes = [best for row in rows for best in row.best.values() if best]
    return max((calibration.distance(shape.depth, shape.width) for shape in shapes), default=None)


def exported(found: Answer, options: Options, project: str) -> str:
    """Configuration of ``project`` (see export.py) for the recommended shape, else for the judged one.

    Raises:
        InputError: no shape is recommended or judged, or several are, or the project has no such block.
    """
    chosen = [(row.depth, row.width) for b in found.budgets if (row := b.recommended)]
    chosen += [(row.depth, row.width) for row in found.verdicts]
    chosen = list(dict.fromkeys(chosen))
    if len(chosen) > 1:
        shapes = ", ".join(f"{depth} × {width}" for depth, width in chosen)
        raise InputError(
            f"{argument('project', '--export')}: prints one configuration, and {shapes} are recommended or judged "
            "here; allowed: one size, by one source"
        )
    if not chosen:
        raise InputError(
            f"{argument('project', '--export')}: no shape is recommended here; give {argument('params')} or "
            f"{argument('shapes', '--shape')}"
        )
    nets = found.assumptions
    options = replace(options, vocab_size=nets.vocabulary, context=nets.context)
    return export.text(_own_shape(*chosen[0], options), project)


def parse_shape(text: str) -> tuple[int, int]:
    """Depth and width of a text such as ``96x12288``.

    Raises:
        InputError: the text is no shape, or a shape written the wrong way round.
    """
    found = re.fullmatch(r"\s*(\d+)\s*[xX×]\s*(\d+)\s*", text)
    # twelve digits exceed any net and keep 12·L·d_x² within the range of floats
    if not found or not all(len(part) <= 12 and int(part) for part in found.groups()):
        raise InputError(f"{argument('shapes', '--shape')}: {text[:40]!r}; allowed: DEPTHxWIDTH, such as 96x12288")
    depth, width = int(found[1]), int(found[2])
    if depth > DEEPER_THAN_WIDE * width and depth >= 128:
        raise InputError(
            f"{argument('shapes', '--shape')}: {text[:40]!r}; the depth comes first: did you mean {width}x{depth}?"
        )
    if width > LARGEST_SIZE:
        raise InputError(
            f"{argument('shapes', '--shape')}: {text[:40]!r}; the width must be at most {LARGEST_SIZE:,.0f}"
        )
    return depth, width


def _parsed(parse: Callable[[str], Parsed], texts: Sequence[str], errors: list[str]) -> list[Parsed]:
    """Parse the texts; ``errors`` collects the lines of invalid ones."""
    found = []
    for text in texts:
        try:
            found.append(parse(text))
        except InputError as error:
            errors += error.templates
    return found


def _parse_rule(text: str) -> Rule:
    rule = practice.parse(text)
    if all(rule.depth(float(n), STANDARD) is None for n in RULE_SIZES):
        raise InputError(f"{argument('rules', '--rule')}: {text[:60]!r}; gives no shape at any size from 1e7 to 1e12")
    return rule


def best_depth(
    name: str, n_params: float, trained: tuple[int, int] | None, source: Source, options: Options
) -> BestDepth:
    """Best depth and width at one size, with the GPT-3 shape for reference. options: of the block whose width it is."""
    depth, law_low, law_high = source.law.depth(n_params)
    refused = source.silent(n_params)
    rivals = source.alternative_depths(n_params)
    if isinstance(source.law, Predicted) and max(rivals.values()) <= FORMS_AGREE * min(rivals.values()):
        rivals = {}
    known = BestDepth(
        name=name,
        source=source.name,
        n_params=n_params,
        trained_depth=trained[0] if trained else None,
        trained_width=trained[1] if trained else None,
        reach=source.reach(n_params),
        extrapolation_factor=source.law.extrapolation(n_params),
        refused=refused,
        trust=guide_sources.judge(source, n_params),
        basis=source.basis(n_params),
        rivals=rivals,
    )
    if refused or depth is None:
        return known
    low, high = guide_sources.interval(source, n_params)
    every = [depth, *rivals.values()]
    weights = options.layer_weights(n_params, depth)
    return replace(
        known,
        depth=depth,
        depth_low=low,
        depth_high=high,
        law_low=law_low,
        law_high=law_high,
        next_depth=depth + source.spacing,
        width=width_at(n_params, depth, weights),
        width_low=width_at(n_params, high, weights),
        width_high=width_at(n_params, low, weights),
        rival_depth_min=min(every) if rivals else None,
        rival_depth_max=max(every) if rivals else None,
        depth_decimals=None if isinstance(source.law, Law | Predicted) else source.law.surface.decimals(n_params),
    )


def budget(n_params: float, source: Source, options: Options) -> BudgetAnswer:
    """Answer for a budget: the optimum, the depths that are nearly as good, and shapes to build."""
    size = block_params(n_params, options, lambda n: source.at(n).law.depth(n)[0])
    source = source.at(size)
    optimum = best_depth(format_count(n_params), size, None, source, options)
    unanswered = BudgetAnswer(
        optimum=optimum, budget=n_params, total=options.total, at=options.at, best={}, unit=source.unit
    )
    if optimum.refused:
        return unanswered
    asked = Budget(n_params if options.total else size, size, source, options)
    loss, usual = asked.loss, usual_shape(asked.asked, size, options)
    near = loss.near_best(TOLERANCES)
    every = asked.candidates(usual)
    candidates = [c for c in every if c.size] or every
    bests = {constraint: best_of(candidates, constraint) for constraint in CONSTRAINTS}
    as_usual = next((c for c in candidates if usual and (c.depth, c.width) == (usual.depth, usual.width)), None)
    default = _default(candidates, loss.stretch(LITTLE)) if optimum.basis == "range" else None
    shown = [asked.bounded(c) for c in thinned(candidates, (*bests.values(), as_usual, default))]
    by_shape = {(c.depth, c.width): c for c in shown}
    bests = {constraint: best and by_shape[best.depth, best.width] for constraint, best in bests.items()}
    default = default and by_shape[default.depth, default.width]
    built = practice.near(size)
    no_best = None
    if optimum.basis == "range":
        no_best = NoBest(
            published().depth(size)[0],
            _ends([m.depth for m in practice.near(size, practice.ABOUT)]),
            _extrapolated(size, options),
        )
    risks = asked.risks(bests | ({"size": default} if default else {}))
    if no_best is None and (at_size := bests["size"]) and at_size.size:
        trust = guide_sources.judge(source, size, risks.get("size"))
        optimum = replace(optimum, trust=guide_sources.of_shape(trust, at_size.size.less_compute))
    return replace(
        unanswered,
        optimum=optimum,
        near_best=near,
        candidates=tuple(shown),
        best=bests,
        default=default,
        no_best=no_best,
        blocks_if_total=_blocks_if_total(n_params, bests["size"], options, source),
        risk=risks.get(options.at),
        risks=risks,
        usual=as_usual and by_shape[as_usual.depth, as_usual.width],
        built=tuple(
            BuiltModel(
                m.model, m.depth, m.width, m.n_params, source.at(m.n_params).cost(m.depth, m.n_params, True), m.source
            )
            for m in built
        ),
        loss_level=loss.level,
        loss_tag=loss.tag,
        limits=options.limits,
        widths=(int(options.widths.width.min()), int(options.widths.width.max())),
    )


def _default(candidates: Sequence[Candidate], near: tuple[float, float]) -> Candidate | None:
    """Default shape: the best at equal training time whose depth wastes little; if possible, one that parallelism can
    divide."""
    low, high = near
    kept = [c for c in candidates if c.within_budget and c.time and low <= c.depth <= high]
    even = [c for c in kept if c.depth % PARALLEL == 0 and c.heads % PARALLEL == 0]
    return min(even or kept, key=lambda c: c.time.less_compute if c.time else math.inf, default=None)


def _ends(depths: Sequence[int]) -> tuple[int, int] | None:
    return (min(depths), max(depths)) if depths else None


def _extrapolated(n_params: float, options: Options) -> tuple[float, float]:
    """Shallowest and deepest depth at a size beyond the sources', extrapolated from each source that compares
    shapes."""
    every = evidence.read()
    tokens = Tokens(options.tokens, options.tokens_per_param).at(n_params) / n_params
    found = [words(one, evidence.read_populations(), n_params, tokens).depth for one in every if compares_at_scale(one)]
    return min(found), max(found)


def _blocks_if_total(n_params: float, best: Candidate | None, options: Options, source: Source) -> float | None:
    """Parameters in the blocks if the budget counts all parameters, as model names do; None if the budget is no usual
    name or embeddings are small."""
    if options.total or best is None or not any(math.isclose(n_params, usual) for usual in USUAL_TOTALS):
        return None
    if best.n_params_total / best.n_params - 1.0 < MUCH_EMBEDDED:
        return None
    try:
        return block_params(n_params, replace(options, total=True), lambda n: source.at(n).law.depth(n)[0])
    except InputError:
        return None


def sources_at(n_params: float, tokens: Tokens) -> tuple[SourceRow, ...]:
    """Answer of each public source at a size, by its own statement if it made one."""
    rows = []
    for source in evidence.read():
        said = words(source, evidence.read_populations(), n_params, tokens.at(n_params) / n_params)
        about = (source.name, source.reference, source.kind, source.sure, source.matched)
        rows.append(SourceRow(*about, said.depth, said.low, said.high, said.outside, said.whose))
    return tuple(rows)


def verdict(depth: int, width: int, source: Source, options: Options) -> ShapeAnswer:
    """Verdict on a shape: too deep, too shallow, balanced or undecided, with its cost at its own size under each
    constraint.

    Balanced: between the lower end of the source's own interval and its upper end plus one step of a law's grid (at its
    transition a depth ties with the next, and the best lies between the two; below the grid's first depth at most twice
    the best), or, in losses of one's own and by public evidence, wasting at most BALANCED percent of compute. Too
    deep or too shallow: outside the one interval, of form, parameters and recipe; undecided between the two. The size
    is the true count of the block that ``options`` describe, 12·L·d_x² for the standard one.
    """
    own = _own_shape(depth, width, options)
    if why := options.refusal(own):
        raise InputError(f"{argument('shapes', '--shape')}: {depth}x{width}; {why}")
    n_params = float(own.n_params)
    source = source.at(n_params)
    found = best_depth(f"{depth}x{width}", n_params, (depth, width), source, options)
    if found.refused or found.depth is None:
        return ShapeAnswer(optimum=found, depth=depth, width=width, verdict="refused", costs={}, best={})
    asked = Budget(float(counted(own, options)), n_params, source, options)
    candidates = asked.candidates(own)
    bests = {constraint: best_of(candidates, constraint) for constraint in CONSTRAINTS}
    mine = asked.bounded(next(c for c in candidates if (c.depth, c.width) == (depth, width)))
    cost = mine.size
    said = "balanced"
    public = isinstance(source.law, Predicted)
    if (source.own or public) and cost is not None and cost.less_compute <= BALANCED:
        pass
    elif public:
        said = "undecided"
        if found.depth_high is not None and depth > found.depth_high:
            said = "too deep"
        elif found.depth_low is not None and depth < found.depth_low:
            said = "too shallow"
    elif found.law_high is not None and depth > found.law_high + min(source.spacing, found.depth):
        said = "too deep" if found.depth_high is not None and depth > found.depth_high else "undecided"
    elif found.law_low is not None and depth < found.law_low:
        said = "too shallow" if found.depth_low is not None and depth < found.depth_low else "undecided"
    return ShapeAnswer(
        optimum=found,
        depth=depth,
        width=width,
        verdict=said,
        depth_ratio=depth / found.depth,
        costs={constraint: mine.cost(constraint) for constraint in CONSTRAINTS},
        best={constraint: best and asked.bounded(best) for constraint, best in bests.items()},
        loss_tag=asked.loss.tag,
        unit=source.unit,
        total=options.total,
    )


def _own_shape(depth: int, width: int, options: Options) -> Shape:
    """Shape with the requested block. If no head size was requested and the usual one does not divide the width, the
    shape has two heads, or one; their number hardly changes the costs.

    Raises:
        InputError: the heads do not fit the width.
    """
    try:
        return options.shape(depth, width)
    except ValueError as error:
        if options.head_size is None and options.kv_heads is None and options.tensor_parallel == 1:
            return replace(options, head_size=width // (1 + (width % 2 == 0))).shape(depth, width)
        raise InputError(f"{argument('shapes', '--shape')}: {depth}x{width}; {error}") from None


def judged(rule: Rule, source: Source, options: Options) -> RuleAnswer:
    """Verdict on a rule of thumb, from 1e7 to 1e12 parameters."""
    rows = [_rule_row(rule, float(n), source, options) for n in RULE_SIZES]
    tags = dict.fromkeys(source.at(row.n_params).loss(row.n_params).tag for row in rows if row.size)
    percent = 100.0 * LITTLE
    fine = [row.size is not None and row.size.less_compute <= percent for row in rows]
    good: list[tuple[float, float]] = []
    for k, row in enumerate(rows):
        if fine[k]:
            good.append((good.pop()[0] if k and fine[k - 1] else row.n_params, row.n_params))
    return RuleAnswer(
        rule=rule.text if rule.text == rule.name else f"{rule.name}: {rule.text}",
        source=source.name,
        tolerance=percent,
        rows=tuple(rows),
        good=tuple(good),
        loss_tag="; ".join(tags) or "no size at which both have an answer",
        unit=source.unit,
    )


def _rule_row(rule: Rule, n_params: float, source: Source, options: Options) -> RuleRow:
    source = source.at(n_params)
    found = best_depth(format_count(n_params), n_params, None, source, options)
    weights = options.layer_weights(n_params, found.depth or 1.0)
    depth = rule.depth(n_params, weights)
    at_size = source.cost(depth, n_params, rough=True) if depth else None
    at_time = loss_percent = None
    if at_size and depth:
        asked, unit = Budget(n_params, n_params, source, options), options.pipeline_parallel
        own = matched(max(unit, round(depth / unit) * unit), n_params, options)
        others = shapes_near(n_params, *asked.loss.stretch(LITTLE), options)
        candidates = asked.costed(with_one(others, own), any_size=True)
        at_time = next((c.time for c in candidates if (c.depth, c.width) == (own.depth, own.width)), None)
        loss_percent = 100 * at_size.nats / asked.loss.level
    return RuleRow(
        n_params=n_params,
        depth=depth,
        width=width_at(n_params, depth, weights),
        best_depth=found.depth,
        best_low=found.depth_low,
        best_high=found.depth_high,
        size=at_size,
        time=at_time,
        loss_percent=loss_percent,
        trust=found.trust.level,
        best_decimals=found.depth_decimals,
    )
