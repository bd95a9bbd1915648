"""Equal what: the best depth of one heap at equal size, total size, tokens per parameter, FLOPs and wall time.

Every line is a question to the same draws of the loss f(x, y, t), with x = ln N, y = ln L, t = ln tokens:

    size                       min over y of f(x, y, t₀)
    total size                 min over y of f(x(y), y, t₀): N and the embeddings of the width add up to the total
    tokens per parameter       min over y of f(x, y, x + ln R)
    N and FLOPs, N and time    min over y of f(x, y, ln C − c(x, y)): a deeper net that costs more sees fewer tokens
    FLOPs, time                min over x and y of the same: each depth at its best size

c is the logarithm of a token's cost at the held values: a quadratic in x and y and a straight line in each
covariate, by least squares of the runs' own ln(cost / tokens); each draw of the loss has a draw of its coefficients. A
table without FLOPs has 6·N + 12·L·d·n per token (Kaplan et al. 2020; Chowdhery et al. 2022; n the context, where it is
known): an assumption that the output states. Runs of one count of tokens do not show what fewer of them cost: nothing
answers at an equal cost.

Where every run had one budget of time or FLOPs its tokens follow from its shape: the uncorrected losses answer at that
budget, and nothing answers at equal tokens. At an edge of the nets and tokens tried a best depth is a bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from dwsweep.fit.answers.nets import ACROSS, LEAST_POINTS, NetGrid, least
from dwsweep.fit.data.covariates import RATE, TOKENS
from dwsweep.fit.data.lengths import FLOP, TIME, TIMES, TrainedBudgets
from dwsweep.fit.data.rows import ALIKE, Row, positive
from dwsweep.fit.data.shape import places
from dwsweep.fit.statistics.ask import LossSurface, effect, quantiles
from dwsweep.fit.statistics.curves import gaussian
from dwsweep.fit.statistics.design import Term
from dwsweep.fit.statistics.posterior import Posterior
from dwsweep.interval import Interval
from dwsweep.records.answers import BEST_DEPTH, FLOPS, GROWTH, N_PARAMS, PER_PARAM, TOTAL, WALL_TIME, AnswerRow
from dwsweep.text import of_digits

SHARES = (0.25, 0.5, 0.75)  # quantiles of ln N and of the runs' costs at which best depths are told
FEWEST_COSTS = 2.0  # rows per coefficient of the cost of a token
FAR = 4.0  # robust standard deviations beyond which a run's time belongs to another machine
EXACT = 1e-3  # scatter of ln cost due to rounding
MOST_EMBEDDING_SCATTER = 0.15  # scatter of ln (embeddings / width) beyond which embeddings do not follow the width
CODES = {FLOP: FLOPS, TIME: WALL_TIME}  # unit of a cost → quantity held equal
AT_SIZE = {unit: f"{N_PARAMS} and {equal}" for unit, equal in CODES.items()}  # the same beside equal N
FEWEST_BUDGETS = 3  # budgets that show a power
GROWING = ("n_params", "tokens", "depth")  # quantities of the best net that grow with the budget
Drawn = dict[str, np.ndarray]  # quantity → (D,) its logarithm, ±inf where it is a bound
SAME_COST = 0.01  # difference in ln cost within which all depths of a size cost the same


@dataclass(frozen=True)
class TokenCost:
    """Cost of a token. unit: ``FLOPs`` or ``wall time``. said: its source, in words. ln: (D | 1, n) at x, y (n,);
    middle: (n,) without its error. spent: (n,) ln cost of whole runs."""

    unit: str
    said: str
    ln: Callable[[np.ndarray, np.ndarray], np.ndarray]
    middle: Callable[[np.ndarray, np.ndarray], np.ndarray]
    spent: np.ndarray

    @property
    def usual(self) -> list[float]:
        """A few costs inside the range of the runs."""
        return [math.exp(float(np.nanquantile(self.spent, share))) for share in SHARES]


def equal_what(asked: Question, trained: TrainedBudgets | None) -> dict[str, Any]:
    """Best depths at each kind of equality that the runs support, as fields of an ``Adjustment``: ``equal``, empty if
    equal size is the only kind; ``at_budgets``, the rows of it at the budgets that the runs were trained to, the
    smallest first; ``growth``, powers of the budget. trained: budgets of all runs; losses stand at the only one.
    """
    flat = asked.surface.record.flat  # a budget has a best size all the same
    if not (flat or asked.surface.has_best):
        return {}
    costs = [*asked.costs()] if np.isfinite(asked.tokens).any() else []
    budget = trained if trained and trained.alone else None
    own = next((one for one in costs if trained and one.unit == trained.unit), None)
    found: list[AnswerRow] = []
    at_budgets: list[tuple[AnswerRow, Drawn]] = []
    if trained and (budget or (own and asked.column)):
        at_budgets += asked.at_costs(trained.unit, own, sorted(trained.rows), trained.known_from, moved=not budget)
    if budget and not flat:
        found += asked.sizes(budget)
    if not flat and not budget:
        found += [*asked.sizes(), *asked.totals(), *asked.ratios()]
        for cost in costs if asked.column else ():
            found += asked.at_size(cost)
            if cost is not own:
                found += [row for row, _ in asked.at_costs(cost.unit, cost, cost.usual, cost.said)]
    own_rows = tuple(row for row, _ in at_budgets)
    several = budget or len({row.equal for row in (*found, *own_rows)}) > 1
    equal = tuple(found) if several else ()
    return {"equal": equal, "at_budgets": own_rows, "growth": tuple(asked.growth(at_budgets))}


class Question:
    """Questions to one surface, of whose ``rows`` each is a run. terms: covariates of the posterior at each. theirs:
    our column → its name in the table.

    x, y: (n,) ln N, ln L of the runs. by_tokens: term of tokens, if there is one, and column: its name. tokens: (n,)
    their ln. held: ln tokens of the answer at equal size; None if they are not known or follow the shape."""

    def __init__(
        self, surface: LossSurface, rows: Sequence[Row], terms: Sequence[Term], theirs: Mapping[str, str], seed: int
    ) -> None:
        self.surface, self.rows, self.theirs, self.rng = surface, rows, theirs, np.random.default_rng([seed, 17])
        self.x, self.y = places(rows)
        self.others = [term.column.value for term in terms if term.of.kind != RATE and term.of.name != TOKENS]
        of_tokens: Any = next((term for term in terms if term.of.name == TOKENS), None)
        self.by_tokens = of_tokens
        self.column: str = self.by_tokens.column.name if self.by_tokens else ""
        self.posterior: Posterior = surface.posterior
        record = surface.record
        self.grid = NetGrid.of(self.x, self.y, self.posterior.grid[self.posterior.inside])
        self.asked_sizes = [record.low + share * (record.high - record.low) for share in SHARES]
        self.tokens = np.log(self.numbers("tokens"))
        known = self.tokens[np.isfinite(self.tokens)]
        self.low, self.high = (float(known.min()), float(known.max())) if len(known) else (math.nan, math.nan)
        same = len(known) == len(self.tokens) and self.high - self.low < math.log(ALIKE)
        self.held = self.by_tokens.of.at if self.column else float(np.median(known)) if same else None

    def numbers(self, name: str) -> np.ndarray:
        """(n,) a positive column of numbers; NaN where it is blank."""
        return np.array([float(v) if positive(v := row.get(name)) else math.nan for row in self.rows])

    # Lines that need no cost

    def sizes(self, budget: TrainedBudgets | None = None) -> Iterator[AnswerRow]:
        """Best depth at equal size, and at the ``budget`` of all runs where they had one."""
        equal, cost, said = (AT_SIZE[budget.unit], budget.main, budget.known_from) if budget else (N_PARAMS, None, "")
        for x in self.asked_sizes:
            yield self._row(equal, cost, said, x, self.surface.at(math.exp(x)), None if budget else self.held)

    def totals(self) -> Iterator[AnswerRow]:
        """Best depth at the total size of the best net of each size."""
        per_width = self._embeddings()
        if per_width is None or self.held is None:
            return
        ratio, y = self._aspect(), self.grid.y
        b = per_width / np.sqrt(ratio * np.exp(y))
        for x in self.asked_sizes:
            best = self.surface.at(math.exp(x)).value
            if best is None:
                continue
            total = math.exp(x) + per_width * math.sqrt(math.exp(x) / (ratio * best))
            size = 2.0 * np.log((np.sqrt(b * b + 4.0 * total) - b) / 2.0)
            if depth := self._best_of(size, y):
                said = f"{self.theirs.get('n_params_total', 'n_params_total')} less N, in proportion to the width"
                at = float(np.interp(math.log(depth.value or best), y, size))
                yield self._row(TOTAL, total, said, at, depth, self.held)

    def ratios(self) -> Iterator[AnswerRow]:
        if not self.column:
            return
        ratio = float(f"{math.exp(float(np.nanmedian(self.tokens - self.x))):.2g}")
        for x in self.asked_sizes:
            t = x + math.log(ratio)
            if self.low <= t <= self.high:
                setting = {self.column: float(self.by_tokens.value(t))}
                yield self._row(PER_PARAM, ratio, "", x, self.surface.at(math.exp(x), setting), t)

    # Lines of a cost

    def costs(self) -> Iterator[TokenCost]:
        flops = self._fitted(FLOP, self.numbers("flops") / np.exp(self.tokens), "flops")
        yield flops or self._formula()
        for name in TIMES:
            if found := self._fitted(TIME, self.numbers(name) / np.exp(self.tokens), name):
                yield found
                return
        speed = self.numbers("tokens_per_second")
        if found := self._fitted(TIME, 1.0 / speed, "tokens_per_second"):
            yield found

    def at_size(self, cost: TokenCost) -> Iterator[AnswerRow]:
        """Best depth at the cost of each size's best net after the held tokens."""
        held, y = self.by_tokens.of.at, self.grid.y
        for x in self.asked_sizes:
            best = self.surface.at(math.exp(x)).value
            if best is None:
                continue
            places, of_best = np.full(len(y), x), cost.ln(np.array([x]), np.array([math.log(best)]))
            dearer = cost.ln(places, y) - of_best
            middle = np.median(dearer, axis=0)
            if np.ptp(middle) >= SAME_COST and (depth := self._best_of(places, y, held - dearer)):
                spent = math.exp(held + float(np.median(of_best)))
                tokens = held - float(np.interp(math.log(depth.value), y, middle)) if depth.value else held
                yield self._row(AT_SIZE[cost.unit], spent, cost.said, x, depth, tokens)

    def at_costs(
        self, unit: str, cost: TokenCost | None, every: Sequence[float], said: str, moved: bool = True
    ) -> Iterator[tuple[AnswerRow, Drawn]]:
        """Best depth at each of several costs, each depth at its best size, and (D,) draws of ln of it, of its N
        and tokens. cost: of a token; moved: False if the losses stand at the cost. said: origin of the costs, in
        words."""
        x, y = self._nets
        for value in every:
            rows, spent = self._net_losses, math.log(value)
            if moved and cost:
                t = spent - cost.ln(x, y)
                rows = rows + self._moved(t, self._net_by_tokens)
                rows[:, ~self._between(np.median(t, axis=0))] = math.inf
            flat = self.surface.record.flat
            size, depth, drawn = self._best_size(rows) if flat else self._best_net(rows)
            row = self._row(CODES[unit], value, said, None, depth, None)
            row = replace(row, **size.columns("n_params"), reason="no effect of depth is shown" if flat else row.reason)
            if cost and size.value and (depth.value or flat):
                own = drawn["n_params"]
                known = np.where(np.isfinite(own), own, math.log(size.value))
                along = np.interp(known, x, y) if flat else np.clip(drawn["depth"], y.min(), y.max())
                # the largest net that is allowed has the fewest tokens
                drawn["tokens"] = np.where(np.isfinite(own), spent - cost.middle(known, along), -own)
                at = np.log([size.value])
                ln_depth = np.log([depth.value]) if depth.value else np.interp(at, x, y)
                row = replace(row, tokens=math.exp(spent - float(cost.middle(at, ln_depth)[0])))
            yield row, drawn

    def _best_size(self, rows: np.ndarray) -> tuple[Interval, Interval, Drawn]:
        """Best size of nets of the middle depths by their losses ``rows`` (D, n)."""
        inside = np.isfinite(rows[0])
        if inside.sum() < LEAST_POINTS:
            return Interval(), Interval(), {"n_params": np.full(len(rows), np.inf)}
        found = least(self._nets[0][inside], rows[:, inside])
        return self._interval(found, of_depth=False), Interval(), {"n_params": found}

    def _best_net(self, rows: np.ndarray) -> tuple[Interval, Interval, Drawn]:
        """Size and depth of the best net by the losses ``rows`` (D, n) of the nets of ``grid``."""
        x, y, edge = self.grid.best(rows)
        size, depth = self._interval(x, edge), self._interval(y, edge, (self.grid.y[0], self.grid.y[-1]))
        if size.value is None:  # each depth ends at another size: the one that reaches farthest would seem best
            depth = Interval()
        elif depth.value is None and size.bounded:  # of the best depth tried, and not of the best depth
            size = Interval()
        return size, depth, {"n_params": np.where(edge == 0.0, x, edge), "depth": np.where(edge == 0.0, y, edge)}

    def _best_of(self, x: np.ndarray, y: np.ndarray, t: np.ndarray | None = None) -> Interval | None:
        """Best depth of nets at x, y (n,) after ln tokens t (D | 1, n), or after the held ones; None if too few of
        these nets and tokens lie within those tried."""
        inside = np.array([self._inside(*at) for at in zip(x, y, strict=True)])
        if t is not None:
            inside &= self._between(np.median(t, axis=0))
        if inside.sum() < LEAST_POINTS:
            return None
        x, y = x[inside], y[inside]
        losses = self.posterior.losses(x, y)
        return self._interval(
            least(y, losses if t is None else losses + self._moved(t[:, inside], self._by_tokens(x, y)))
        )

    def growth(self, found: Sequence[tuple[AnswerRow, Drawn]]) -> Iterator[AnswerRow]:
        """Powers of the budget with which N, tokens and depth of the best net grow: ln quantity = k + a·ln C by
        weighted least squares in every draw, over the budgets that reach it; none with fewer than three."""
        reached = [(math.log(row.cost or 1.0), drawn) for row, drawn in found if row.n_params and row.tokens]
        if len(reached) < FEWEST_BUDGETS:
            return
        x, confidence = np.array([ln for ln, _ in reached]), self.surface.record.confidence
        for name in (name for name in GROWING if name in reached[0][1]):
            drawn = [one[name] for _, one in reached]
            finite = [one[np.isfinite(one)] for one in drawn]
            if min(map(len, finite)) < (1.0 + confidence) / 2.0 * self.posterior.n_draws:
                continue  # an end of the interval lies among draws that are only bounds
            y = np.array([np.clip(one, few.min(), few.max()) for one, few in zip(drawn, finite, strict=True)])
            weight = 1.0 / y.var(axis=1)
            away = x - float(weight @ x) / weight.sum()
            slope = effect((weight * away) @ y / float(weight @ away**2), confidence)
            yield AnswerRow(question=GROWTH, equal=found[0][0].equal, column=name, **slope.columns("estimate"))

    # Costs

    def _fitted(self, unit: str, per_token: np.ndarray, column: str) -> TokenCost | None:
        """Cost of a token, from a column of the table; None if too few runs have one, or none has tokens."""
        with np.errstate(divide="ignore"):
            ln = np.log(per_token)
        use = np.isfinite(ln)
        frame = self.posterior.frame

        def terms(x: np.ndarray, y: np.ndarray) -> np.ndarray:
            a, b = frame.u(x), frame.v(y)
            return np.stack([np.ones_like(a), a, b, a * a, a * b, b * b])

        A = terms(self.x, self.y).T
        others = [value for value in self.others if use.any() and np.ptp(value[use]) > 0.0]
        if use.sum() >= FEWEST_COSTS * (A.shape[1] + len(others)):
            A = np.column_stack([A, *others])
        if use.sum() < FEWEST_COSTS * A.shape[1]:
            return None
        for _ in range(3):
            beta = np.linalg.lstsq(A[use], ln[use], rcond=None)[0]
            rest = ln - A @ beta
            sd = max(1.4826 * float(np.median(np.abs(rest[use]))), EXACT)
            use = np.isfinite(ln) & (np.abs(np.where(np.isfinite(rest), rest, math.inf)) <= FAR * sd)
        scatter = math.sqrt(float((rest[use] ** 2).sum()) / max(use.sum() - A.shape[1], 1))
        away = gaussian(np.linalg.pinv(A[use].T @ A[use]), self.posterior.n_draws, self.rng)
        drawn = beta[:6] + scatter * away[:, :6]

        out = int(np.isfinite(ln).sum() - use.sum())
        said = f"{self.theirs.get(column, column)} of {int(use.sum())} runs"
        said += f", ± {100.0 * scatter:.2g} % about their line" if scatter > EXACT else ""
        said += f"; {out} far off it left out" if out else ""
        return TokenCost(
            unit, said, lambda x, y: drawn @ terms(x, y), lambda x, y: beta[:6] @ terms(x, y), ln + self.tokens
        )

    def _formula(self) -> TokenCost:
        """FLOPs of a token: 6·N, and attention where the context is known."""
        context = self.numbers("seq_len")
        n = float(np.nanmedian(context)) if np.isfinite(context).any() else 0.0
        ratio = self._aspect()

        def at(x: np.ndarray, y: np.ndarray) -> np.ndarray:
            size, depth = np.exp(x), np.exp(y)
            return np.asarray(np.log(6.0 * size + 12.0 * n * np.sqrt(size * depth / ratio)))

        said = f"(6·N + 12·L·d·{n:.0f})·tokens, assumed" if n else "6·N·tokens, assumed"
        return TokenCost(FLOP, said, lambda x, y: at(x, y)[None], at, at(self.x, self.y) + self.tokens)

    # Tokens

    def _between(self, t: np.ndarray) -> np.ndarray:
        """True if ln tokens lie within the range of the runs."""
        return (self.low - 1e-9 <= t) & (t <= self.high + 1e-9)

    def _moved(self, t: np.ndarray, by_tokens: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """(D, n) change of the loss from the held tokens to e^t (D | 1, n), by the coefficients ``_by_tokens``."""
        straight, bent = by_tokens
        value = self.by_tokens.value(np.clip(t, self.low, self.high)).astype(straight.dtype)
        return (straight + bent * value) * value

    def _by_tokens(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Coefficients of the standardised ln tokens at x, y (n,), (D, n), and of its square, (D, 1), one for all."""
        up = self.posterior.of_columns(x, y, {self.column: 1.0})
        bent = (up[:, :1] + self.posterior.of_columns(x[:1], y[:1], {self.column: -1.0})) / 2.0
        return up - bent, bent

    # Shapes

    def _aspect(self) -> float:
        """N / (L·d²) of the runs: 12 in a standard block."""
        return float(np.exp(np.median(self.x - self.y - 2.0 * np.log(self.numbers("width")))))

    def _embeddings(self) -> float | None:
        """Parameters beyond N per unit of width; None if no column has them, or they do not follow the width."""
        more = (self.numbers("n_params_total") - np.exp(self.x)) / self.numbers("width")
        known = more[np.isfinite(more)]
        if len(known) < len(more) / 2 or (known <= 0.0).any() or np.log(known).std() > MOST_EMBEDDING_SCATTER:
            return None
        return float(np.median(known))

    def _inside(self, x: float, y: float) -> bool:
        (first, last), frame = self.surface.reach(x), self.posterior.frame
        return frame.low - 1e-9 <= x <= frame.high + 1e-9 and first - 1e-9 <= y <= last + 1e-9

    @cached_property
    def _nets(self) -> tuple[np.ndarray, np.ndarray]:
        """(x, y) of the nets that are compared: of the grid, or of the middle depth of each size where depth shows no
        effect."""
        if not self.surface.record.flat:
            return self.grid.nets
        x = np.linspace(self.surface.record.low, self.surface.record.high, ACROSS)
        return x, np.array([sum(self.surface.reach(a)) / 2.0 for a in x.tolist()])

    @cached_property
    def _net_losses(self) -> np.ndarray:
        """(D, n) losses of the nets, of which millionths of a nat are known."""
        return self.posterior.losses(*self._nets).astype(np.float32)

    @cached_property
    def _net_by_tokens(self) -> tuple[np.ndarray, np.ndarray]:
        """``_by_tokens`` of the same nets: kept for all budgets and costs, since they took most of a heap's fit."""
        straight, bent = self._by_tokens(*self._nets)
        return straight.astype(np.float32), bent.astype(np.float32)

    # Answers

    def _interval(
        self,
        drawn: np.ndarray,
        edge: np.ndarray | float = 0.0,
        ends: tuple[float, float] = (-math.inf, math.inf),
        of_depth: bool = True,
    ) -> Interval:
        """The interval of draws (D,) of a logarithm, of which some may be infinite: no value where more than half are.

        edge: (D,) ±inf where a draw is only a bound. ends: of what was tried, which bound a quantity that lies surely
        beyond one of them. of_depth: True for a net that depth tells: draws without an effect of depth have none.
        """
        confidence = self.surface.record.confidence
        if of_depth:
            side = np.where(np.arange(len(drawn)) % 2, np.inf, -np.inf)
            drawn = np.where(self.posterior.without_effect, side, drawn)
        low = quantiles(np.where(edge == -np.inf, -np.inf, drawn), confidence)[0]
        high = quantiles(np.where(edge == np.inf, np.inf, drawn), confidence)[2]
        middle = quantiles(np.where(edge == 0.0, drawn, edge), confidence)[1]
        low = low if low == -math.inf else min(low, ends[1])
        high = high if high == math.inf else max(high, ends[0])
        return Interval(*(v if math.isfinite(v) else None for v in (middle, low, high))).map(math.exp)

    def _row(
        self, equal: str, cost: float | None, said: str, x: float | None, depth: Interval, tokens: float | None
    ) -> AnswerRow:
        return AnswerRow(
            question=BEST_DEPTH,
            equal=equal,
            cost=cost,
            known_from=said,
            n_params=None if x is None else math.exp(x),
            tokens=None if tokens is None else of_digits(math.exp(tokens)),
            **depth.columns("depth"),
            monte_carlo_error=depth.error or None,
            reason="" if depth.value is not None else "at an edge of the nets or tokens tried",
        )
