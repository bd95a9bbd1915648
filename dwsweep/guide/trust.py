"""The one interval of a best depth, and how far to trust it.

An own fit brings its interval along: forms that the data leave open, parameters and noise are averaged in it, and the
recipe is one's own. The published law's own interval is that of its two constants alone. So for it the interval is
drawn around all forms that fit its points as well, over sizes up to RECIPE_FACTOR smaller and larger (other data,
tokens, rates and blocks move a transition in N), and up to the next depth of its grid, with which a depth ties.

Trust, by the first line that holds:

    low     the published law alone, at every size; more than NEAR times outside the data of one's own fit;
            or forms apart by more than FORMS_APART (outside the data those too that the data inside reject: forms
            that hold inside were wrong outside in simulated sweeps); or no bound on a side
    high    one's own fit, inside its data, forms within FORMS_AGREE, interval (CONFIDENCE or more) within ENDS_AGREE,
            and the shape to build within SUBSTANTIAL of the loss of the best depth
    medium  else
"""

from __future__ import annotations

import math

from dwsweep.guide.answers import Trust
from dwsweep.guide.law_sources import CONFIDENCE, Source
from dwsweep.text import format_factor

# ASSUMPTION: where another recipe has the transition of a depth, in N, at 95 %
RECIPE_FACTOR = 4.0
# the best depths of Gemstones, CompleteP and mlfoundations' grid over the published law's
NEWER_DATA = "Newer public data put the best depth at 0.3 to 1.0 times this between 5e7 and 7e8 parameters"
NEAR = 3.0
FORMS_AGREE, FORMS_APART = 1.15, 1.4  # deepest over shallowest best depth of the forms
ENDS_AGREE = 1.5  # upper end over lower end of the interval
SUBSTANTIAL = 0.005  # of the loss: a shape to build that costs more than this is not what the losses say is best
# where the shape that costs least on average is further than this from the likeliest best depth, it is said why
BUILD_APART = 1.15


def interval(source: Source, n_params: float) -> tuple[float | None, float | None]:
    """(low, high) of the best depth at ``n_params``; None: no bound."""
    if source.surface is not None:
        return source.law.depth(n_params)[1:]
    lows, highs = [], []
    for law in (source.law, *source.rivals):
        depth, low, _ = law.depth(n_params / RECIPE_FACTOR)
        lows.append(depth if low is None else low)
        depth, _, high = law.depth(n_params * RECIPE_FACTOR)
        highs.append(None if depth is None or high is None else high + source.spacing)
    low = min((value for value in lows if value is not None), default=None)
    return low, None if None in highs else max(value for value in highs if value is not None)


def ends_agree(source: Source) -> float:
    """Largest ratio of the ends of an interval that is trusted most; 1 where intervals hold the truth less often."""
    record = source.surface.surface.record if source.surface else None
    return ENDS_AGREE if record is None or record.confidence >= CONFIDENCE else 1.0


def judge(source: Source, n_params: float) -> Trust:
    """Level and reasons at ``n_params``, by the rule above."""
    depth = source.law.depth(n_params)[0]
    if depth is None or depth < 1.0 or source.refuses(n_params):
        return Trust("low", (source.reach(n_params),))
    factor = source.law.extrapolation(n_params)
    rejected = [form.depth(n_params)[0] for form in source.rejected] if factor > 1 else []
    beyond = [value for value in rejected if value is not None]
    every = [depth, *source.rival_depths(n_params).values(), *beyond]
    apart = max(every) / min(every)
    low, high = interval(source, n_params)
    ends = math.inf if low is None or high is None else high / low
    own = source.surface is not None
    if not own or factor > NEAR or apart > FORMS_APART or math.isinf(ends):
        level = "low"
    elif factor <= 1 and apart <= FORMS_AGREE and ends <= ends_agree(source):
        level = "high"
    else:
        level = "medium"
    where = "the sizes at which your losses say how deep" if own else "the data of the published law"
    reasons = [] if own else ["no losses of your own recipe"]
    reasons.append(f"inside {where}" if factor <= 1 else f"{format_factor(factor)} times outside {where}")
    if len(every) > 1:
        said = "agree" if apart <= FORMS_AGREE else "fit as well, or did not," if beyond else "fit as well"
        named = dict.fromkeys(f"{end:.{end < 10:d}f}" for end in (min(every), max(every)))
        reasons.append(f"forms that {said} put the best depth at {' to '.join(named)}")
    else:
        reasons.append("one form is left" if own else "one form only")
    reasons.append(
        "your recipe's own losses"
        if own
        else f"another recipe may shift it by {RECIPE_FACTOR:g} times in N (ASSUMED); costs from an ASSUMED curvature"
    )
    return Trust(level, tuple(reasons))


def of_shape(found: Trust, behind: float) -> Trust:
    """With what the shape to build is ``behind`` the best depth of its budget, as a share of the loss: not high where
    that is more than SUBSTANTIAL."""
    if behind <= SUBSTANTIAL:
        return found
    reason = f"the best shape that one can build is {100 * behind:.1f} % of the loss behind the best depth"
    return Trust("medium" if found.level == "high" else found.level, (reason, *found.reasons))
