"""Model of the loss: levels, forms of the transition, departures, further columns, and priors.

With x = ln N, y = ln L, u = x scaled to −1 … 1 over the data, and one mean loss per cell,

    loss = level(x) + further columns + h(x, y) + δ(x, y) + scatter of a shape + noise of its runs

level   E + A·(e^(−α(x − x₀)) − 1)/α, an asymptote as in Hoffmann et al. 2022, and smooth waves in x beside it.
h       depth by a form of the transition. With x_T(y) the size at which depth e^y is the best one,

            dh/dy = −c·g(y)·e^(−a(x − x₀))·(x − x_T(y)) − s·g(y)·e^(−a(x − x₀))·w²/√(w² + w₀²),   h(x, y₀) = 0,
            g = e^((1 − p)(y − y₀)),   x_T = k(y) + (1 − J(y))·x_lo + J(y)·x_hi,   w = x − x_T

        x_lo and x_hi are x_T at the shallowest and the deepest net. h is linear in A_lo = c·(x_lo − x₀), A_hi, c and
        the skew s, so that a lead without an end, which leaves c and x_T unknown, is one Gaussian direction. J and k
        belong to the form (``laws.py``). ``free`` has no law: c of either sign, g = 1, a = 0. ``none``: h = δ = 0.
δ       departures, S(x, y)·z(x, y): z has a Gaussian kernel in x and a Matérn-3/2 kernel in y, as cosine waves with
        their spectral densities (Solin and Särkkä 2020). S is the effect of depth near the best depth, and grows with
        the loss above it, so that shapes far from the best one do not set the size of departures beside it
        (``Effect``).
scatter of a shape, and a smooth curve of x that all shapes of a depth share: such scatter is no effect of depth. A
        depth whose shapes all lie off the others has an offset of its own (``nodes.with_odd_depths``).

Given the form and the hyperparameters η the model is linear in Gaussian coefficients. One Cholesky factor of their
precision, bordered by the losses, gives the evidence (``density``), back substitution draws (``drawn``). Sums over the
cells are taken once per group of equal variance: the cost of η does not grow with rows.

Priors, a table: each is normal; priors of η are of natural logarithms but for p and a.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dwsweep.fit.data.shape import SAME_SIZE
from dwsweep.fit.statistics.bounded import Bounded
from dwsweep.fit.statistics.laws import FORMS as LAWS
from dwsweep.fit.statistics.laws import POWER, LawForm
from dwsweep.records.cells import SAME, Cells, ModelColumn, Prior

TYPICAL_ALPHA = 0.15
PRIORS: Mapping[str, Prior] = {
    "alpha": Prior(math.log(TYPICAL_ALPHA), 0.8, "ln", "exponents of N: 0.076 (Kaplan 2020), 0.35 (Besiroglu 2024)"),
    "level": Prior(math.log(0.01), 1.5, "ln nats", "departures of public curves from E + A·N^(−α)"),
    "p": Prior(1.8, 0.5, "power of L", "slopes of loss differences fall as L^(−2.1) in public data, less in corners"),
    "a": Prior(0.25, 0.2, "power of N", "effects of depth fall as N^(−0.2) to N^(−0.6) in three sets of losses"),
    "skew": Prior(math.log(0.25), 0.9, "ln of E", "curvatures on either side alike, or 1.7 to 10 : 1 (Kaplan 2020)"),
    "share": Prior(math.log(0.1), 0.8, "ln of S", "departures as large as in public sweeps, or nothing"),
    "len_x": Prior(math.log(2.5), 0.4, "ln of ln N", "departures do not change over a factor of two in N"),
    "len_y": Prior(math.log(0.8), 0.5, "ln of ln L", "they may over a factor of two in depth"),
    "scale": Prior(0.0, 0.02, "ln of declared sd", "a declared noise is accurate to 2 %"),
    "scatter": Prior(math.log(1.5e-3), 1.0, "ln nats", "reruns agree to 0.001, shapes of public sweeps to 0.004"),
    "shared": Prior(math.log(3e-3), 1.0, "ln nats", "points of one run of public sweeps share 0.001 to 0.01"),
    "depthwise": Prior(math.log(0.7), 0.5, "ln of scatter", "errors of all shapes of a depth may be one curve"),
    "interact": Prior(math.log(0.25), 0.6, "ln of E", "recipes and token counts move depth effects by as much"),
}  # fmt: skip
# few sizes hardly show departures, and a kink of the curvature is one
OF_FEW_SIZES = Prior(math.log(0.2), 0.5, "ln of S", "as large as a parabola of curvatures 0.1 and 0.04 needs")
FEW_SIZES = 3
UNREPLICATED = Prior(math.log(3e-3), 1.3, "ln nats", "a single run per shape: the scatter holds the noise of a run too")
WIDE = 30.0  # prior scale of E and A, nats: unknown
# slope of ln loss in ln N (Kaplan et al. 2020), where nets have one size and show none; its error is as large
SIZE_SLOPE = -0.076
SAME_BUDGET = 0.1  # tolerance in ln N: rounded widths move shapes of one budget by up to a tenth
# sds of A_lo and A_hi and of c in units of E, the size of depth effects (``Effect``). A parabola has c and A of about
# E; wider priors let a law of a dozen shapes err by half a nat in corners without shapes
ENDS_SD, GAIN_SD = 6.0, 1.5
MOST_SKEW = 0.85  # largest |s| over c in a law: curvatures of 12 : 1; at 1 the loss has no minimum
# sd of another arm's departures, in units of e^interact·S
OWN_DEPARTURES = 0.6
SHIFT_SD = np.array([1.0, 1.0, 0.3])  # sds of a covariate's shifts of A_lo, A_hi and c, in units of e^interact·E
NO_SCATTER = 1e-5  # least noise: losses are printed to no more digits, nats

BOX = 1.5  # half width of the waves' box, in half spans of the data
MOST_DECAY = 20.0  # largest |ln| of the factor by which depth effects decay
LEVEL_LENGTH = 0.8  # length of the kernel of the level's waves, in half spans
PACE = math.pi / (2.0 * BOX)  # lowest frequency of the waves
TURN = 0.3  # w₀, in ln N: the skew sets in over about this distance
ROUGHER = 4.0  # size of depth effects over what a quadratic leaves of them where they have a ridge
# departures over the loss above that of the best depth; by 1 they are too small beside it, by 0 a third too large
GROWTH = 0.5
NEAR = math.log(2.0)  # distance in ln L that counts as near the best depth
QUADRATURE = np.polynomial.legendre.leggauss(10)  # points and weights of the integral over layers
AT_ONE_SIZE = 2.0  # half range in ln N for tables whose nets have one size: waves in x are constants within it
FARTHEST = 6.0  # prior sds of a hyperparameter
ONE_SIZE = 0.35  # distance in ln N of shapes that held-out residuals count as one size
ROUNDING = 1e-12  # share of a weight, or of a loss, that is rounding
NOTHING = -1e10  # log density if the model cannot be evaluated at η
BINS = 0.05  # bin width in ln variance: cells of a bin share their variance
OWN_WAVES, MOST_OWN = 4, 48  # waves in x that shapes of a depth share, and of all depths together
CHUNK = 200_000  # most numbers of a precision at once: what a processor keeps near


def rooted(M: np.ndarray, share: float = 1e-14) -> np.ndarray:
    """(N, P, P) lower roots of the precisions ``M``. One that rounding has left without a root, of losses far beyond
    their noise, gets a ``share`` of its own diagonal more, and a hundred times as much until it has one: so much
    narrower is its prior."""
    try:
        return np.linalg.cholesky(M)
    except np.linalg.LinAlgError:
        if len(M) > 1:
            return np.concatenate([rooted(one[None]) for one in M])
    return rooted(M + share * np.eye(M.shape[1]) * np.diagonal(M, axis1=1, axis2=2)[:, None, :], 100.0 * share)


def declared(sd: float) -> Prior:
    """Prior of a scatter that was declared."""
    return Prior(math.log(max(sd, NO_SCATTER)), 0.02, "ln nats", "as declared")


def of_arm(name: str) -> str:
    """Name of the column of an arm, which no other column has."""
    return f"arm {name}"


def crossed(one: str, other: str) -> str:
    """Name of the column by which the effect of one column differs with the value of another."""
    return f"{one} × {other}"


def arm_column(name: str, member: np.ndarray, x: np.ndarray) -> ModelColumn:
    """Column of another recipe: a smooth level of its own, and depth effects shrunk towards the first recipe's.

    Without the slope that one size leaves open, or the curvature that two do: least squares would take these from the
    rounding of the widths. x: (K,) of all recipes."""
    value = np.asarray(member, dtype=float)
    sizes = distinct_sizes(x[value > 0.5])
    sds = 2.0, 0.5 if sizes > 1 else 0.0, 0.1 if sizes > 2 else 0.0, 0.0, 0.0
    return ModelColumn(of_arm(name), value, sds, True, True, own_level=True)


def covariate(name: str, value: np.ndarray, effect: float, moves_depth: bool = False) -> ModelColumn:
    """Column of a standardised logarithm: a smooth effect of about ``effect`` nats."""
    sds = (effect, 0.5 * effect, 0.0, 0.5 * effect, 0.0)
    return ModelColumn(name, np.asarray(value, dtype=float), sds, moves_depth, shrunk=True)


def factor(name: str, member: np.ndarray, effect: float, moves_depth: bool = False) -> ModelColumn:
    """Column of a text: an offset of about ``effect`` nats, and a slope."""
    sds = (effect, 0.3 * effect, 0.0, 0.0, 0.0)
    return ModelColumn(name, np.asarray(member, dtype=float), sds, moves_depth, shrunk=True)


def rate(name: str, value: np.ndarray, effect: float) -> ModelColumn:
    """Column of a learning rate: a parabola in its logarithm whose lowest point follows size and depth.

    value: (K,) ln rate less a first estimate of the best one, standardised. With b = β₀ + β₁u + β₂v and the curvature κ
    the best value is −b/2κ; each draw is taken there (``ModelColumn.tuned``). In another arm its ``crossed`` column
    adds to b and κ.
    """
    value = np.asarray(value, dtype=float)
    sds = (effect, effect, 0.0, effect, effect)
    return ModelColumn(name, value, sds, shrunk=True, tuned=(float(value.min()), float(value.max())))


def distinct_sizes(x: np.ndarray) -> int:
    """Number of sizes; sizes of one rounded budget count once."""
    count, last = 0, -math.inf
    for value in np.sort(x):
        if value - last > SAME_BUDGET:
            count, last = count + 1, value
    return count


def is_one_size(x: np.ndarray) -> bool:
    """True if nets of ln N = x (K,) have one size."""
    return float(np.ptp(x)) <= SAME_SIZE


@dataclass(frozen=True)
class Frame:
    """Range of the data: low and high x; first, last of y. one_size: low and high lie about the size of all nets."""

    low: float
    high: float
    first: float
    last: float
    one_size: bool = False

    @classmethod
    def of(cls, x: np.ndarray, y: np.ndarray) -> Frame:
        low, high, one = float(x.min()), float(x.max()), is_one_size(x)
        if one:
            low, high = (low + high) / 2.0 - AT_ONE_SIZE, (low + high) / 2.0 + AT_ONE_SIZE
        return cls(low, high, float(y.min()), float(y.max()), one)

    @property
    def x0(self) -> float:
        return (self.low + self.high) / 2.0

    @property
    def y0(self) -> float:
        return (self.first + self.last) / 2.0

    @property
    def xs(self) -> float:
        """Half the span of x."""
        return max(self.high - self.low, 1e-6) / 2.0

    @property
    def ys(self) -> float:
        return max(self.last - self.first, 1e-6) / 2.0

    def inside(self, x: float) -> float:
        """x, or the end of the sizes of the data next to it."""
        return min(max(x, self.low), self.high)

    def u(self, x: np.ndarray) -> np.ndarray:
        return (np.asarray(x, dtype=float) - self.x0) / self.xs

    def v(self, y: np.ndarray) -> np.ndarray:
        return (np.asarray(y, dtype=float) - self.y0) / self.ys

    @cached_property
    def waves(self) -> tuple[int, int]:
        """Counts of waves in x and y: as many as their shortest likely lengths need."""
        return min(max(math.ceil(2.2 * self.xs / 1.6) + 2, 4), 7), min(max(math.ceil(6.0 * self.ys), 6), 16)

    def in_x(self, x: np.ndarray) -> np.ndarray:
        """(n, J) cosines, the constant one first; constant beyond the data."""
        return np.cos(PACE * np.arange(self.waves[0]) * (np.clip(self.u(x), -1, 1)[..., None] + BOX))

    def in_y(self, y: np.ndarray) -> np.ndarray:
        """(n, M) cosines; beyond the depths of the data they go on to the end of the box, and are constant there."""
        return np.cos(PACE * np.arange(1, self.waves[1] + 1) * (np.clip(self.v(y), -BOX, BOX)[..., None] + BOX))

    def smooth_sd(self, ln_length: np.ndarray) -> np.ndarray:
        """(…, J) prior sd of the waves in x of a unit process with kernel exp(−r²/2ℓ²), ln ℓ in ln N."""
        j = np.arange(self.waves[0])
        length = np.exp(np.asarray(ln_length))[..., None] / self.xs
        box = np.where(j == 0, 2.0 * BOX, BOX)
        density = math.sqrt(2.0 * math.pi) * length / box
        return np.sqrt(density) * np.exp(-0.25 * (length * PACE * j) ** 2)

    def rough_sd(self, ln_length: np.ndarray) -> np.ndarray:
        """(…, M) prior sd of the waves in y of a unit process with a Matérn-3/2 kernel, ln ℓ in ln L."""
        m = np.arange(1, self.waves[1] + 1)
        rate = math.sqrt(3.0) * np.exp(-np.asarray(ln_length))[..., None] * self.ys
        return np.sqrt(4.0 * rate**3 / BOX) / (rate**2 + (PACE * m) ** 2)


@dataclass(frozen=True)
class Effect:
    """Size of depth effects, by a quadratic in x and y through the cell means: a scale of priors, never an answer.

    E: nats, root mean square of the effect within a factor of two in depth and of e in size. rough: nats, effect of
    which the quadratic's own departures are a part, such as a ridge between two valleys. slope, bend, mixed: nats,
    coefficients of the quadratic at v, v² and u·v.
    """

    frame: Frame
    E: float
    rough: float
    slope: float
    bend: float
    mixed: float

    @classmethod
    def of(cls, cells: Cells, frame: Frame) -> Effect:
        u, v = frame.u(cells.x), frame.v(cells.y)
        own = [one.columns(one.value, u, v) for one in cells.columns]
        own += [(np.abs(cells.y - y) < SAME)[:, None] for y, _ in cells.odd]
        both = np.hstack([np.stack([np.ones_like(u), u, u * u], axis=1), *own, np.stack([v, v * v, u * v], axis=1)])
        # small ridge: a column that shapes leave open is not taken from rounding
        ridge = 1e-3 * math.sqrt(len(u)) * np.eye(both.shape[1])[-3:]
        loss = cells.mean - cells.mean.mean()
        found = np.linalg.lstsq(np.vstack([both, ridge]), np.concatenate([loss, np.zeros(3)]), rcond=None)[0]
        at = np.unique(cells.y, return_inverse=True)[1]
        left = float(np.median(np.abs(np.bincount(at, loss - both @ found) / np.bincount(at))))
        shape = cls(frame, 1.0, ROUGHER * left, *found[-3:].tolist())
        tilt, best = shape.best(np.linspace(-1.0, 1.0, len(QUADRATURE[0])))
        # slope at the best depth trained: zero inside the depths, and all there is where the loss falls straight
        edge = math.sqrt(np.mean((tilt + 2.0 * shape.bend * best) ** 2))
        near, one = NEAR / frame.ys, 1.0 / frame.xs
        E = math.hypot(shape.bend * near**2, shape.mixed * near * one, edge * near)
        return replace(shape, E=max(E, 10.0 * NO_SCATTER))

    def best(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Slope in v at the middle depth, nats, and v of the least loss between the shallowest and the deepest net."""
        tilt = self.slope + self.mixed * u
        return tilt, np.clip(-tilt / (2.0 * self.bend), -1.0, 1.0) if self.bend > 0.0 else -np.sign(tilt)

    def scale(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """S at x and y, broadcast, nats: E at the best depth trained, ``GROWTH`` of the loss above it far from it."""
        u, v = np.clip(self.frame.u(x), -1, 1), np.clip(self.frame.v(y), -1, 1)
        tilt, best = self.best(u)
        above = tilt * (v - best) + self.bend * (v * v - best**2)
        return np.hypot(math.hypot(self.E, self.rough), GROWTH * np.maximum(above, 0.0))


@dataclass(frozen=True)
class Form:
    """A form of the transition, x_T(y) of ``equation``.

    law: whether c > 0, |s| < c, and depth effects fall with depth and size. effect: whether depth does anything.
    """

    name: str
    equation: LawForm
    law: bool = True
    effect: bool = True


# every form of the width law; ``free``, without a law: the best depth is a power of the size, rising or falling;
# ``none``: depth does nothing
FORMS: Mapping[str, Form] = {
    **{name: Form(name, equation) for name, equation in LAWS.items()},
    "free": Form("free", POWER, law=False),
    "none": Form("none", POWER, law=False, effect=False),
}


def decay(a: np.ndarray, x: np.ndarray, frame: Frame) -> np.ndarray:
    """e^(−a(x − x₀)), constant beyond the sizes of the data."""
    power = -np.asarray(a) * np.clip(np.asarray(x) - frame.x0, -frame.xs, frame.xs)
    return np.exp(np.clip(power, -MOST_DECAY, MOST_DECAY))


def asymptotic(alpha: np.ndarray, x: np.ndarray, frame: Frame) -> np.ndarray:
    """(e^(−α(x − x₀)) − 1)/α: a straight line as α → 0."""
    alpha = np.asarray(alpha)
    return np.expm1(-alpha * (np.asarray(x) - frame.x0)) / alpha


@dataclass(frozen=True)
class FormEffect:
    """h of a form at M depths, linear in A_lo, A_hi, c and s, but for its decay with size; for N nodes.

    G, high, middle: (N, M) ∫g, ∫g·J and ∫g·k from the middle depth. g: (N, M, Q), ties: (M, Q) x_T, at the points of
    the quadrature.
    """

    x0: float
    G: np.ndarray
    high: np.ndarray
    middle: np.ndarray
    g: np.ndarray
    ties: np.ndarray

    @classmethod
    def of(cls, form: Form, frame: Frame, ends: np.ndarray, p: np.ndarray, y: np.ndarray) -> FormEffect:
        points, weights = QUADRATURE
        half = (y - frame.y0)[:, None] / 2.0
        points, weights = half * (points + 1.0), half * weights  # measured from the middle depth
        k, J = form.equation.parts(frame.y0 + points, (frame.first, frame.last), ends)
        g = np.exp((1.0 - p)[:, None, None] * points) * weights
        return cls(frame.x0, g.sum(-1), (g * J).sum(-1), (g * k).sum(-1), g, k + (1.0 - J) * ends[0] + J * ends[1])

    def columns(self, x: np.ndarray, at: np.ndarray | None = None) -> tuple[np.ndarray, ...]:
        """Columns of A_lo, A_hi, c and s, (N, n) each, at x (n,) and the depths of places ``at`` (n,); None: at x (M,)
        and each depth in turn."""
        own = slice(None) if at is None else at
        w = x[:, None] - self.ties[own]
        turned = w * w / np.sqrt(w * w + TURN**2)
        if at is None:
            skew = np.einsum("nmq,mq->nm", self.g, turned)
        else:
            skew = np.empty((len(self.G), len(x)))
            for place in np.unique(at):
                skew[:, at == place] = self.g[:, place] @ turned[at == place].T
        return *self.straight(x, at), -skew

    def straight(self, x: np.ndarray, at: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """``columns`` without the skew."""
        own = slice(None) if at is None else at
        G, high = self.G[:, own], self.high[:, own]
        return G - high, high, self.middle[:, own] - (x - self.x0) * G


@dataclass
class LossModel:
    """One form on the cells, linearised at ``ends`` = (x_lo, x_hi), by default those of the sizes."""

    cells: Cells
    form: Form
    frame: Frame
    effect: Effect
    ends: np.ndarray = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        cells, frame, form = self.cells, self.frame, self.form
        few = {"share": OF_FEW_SIZES} if distinct_sizes(cells.x) <= FEW_SIZES else {}
        priors = {**PRIORS, **few, "scatter": cells.scatter, **cells.learnt}
        has = {
            "scale": cells.df > 0.0,
            "shared": cells.shared is not None,
            "depthwise": len(np.unique(cells.y)) < len(cells.y),
            "interact": form.effect and any(one.moves_depth or one.own_departures for one in cells.columns),
            **dict.fromkeys(("p", "a", "skew"), form.law),
            **dict.fromkeys(("share", "len_x", "len_y"), form.effect),
        }
        self.names = [name for name in PRIORS if has.get(name, True)]  # hyperparameters
        self.typical = {name: prior.mean for name, prior in priors.items()}
        self.prior_mean = np.array([priors[name].mean for name in self.names])
        self.prior_sd = np.array([priors[name].sd for name in self.names])
        if 0.0 < cells.df < math.inf:  # the likelihood bounds the scale, which then needs no prior
            self.prior_sd[self.names.index("scale")] = 3.0
        own_values = {one.name: one.value for one in cells.columns}
        self.depths, self.at_depth = np.unique(cells.y, return_inverse=True)
        own = self.at_depth[:, None] == np.arange(len(self.depths))
        own = own[:, :, None] * frame.in_x(cells.x)[:, None, : self.n_own]
        departures = []
        if form.effect:
            waves = self.departures(cells.x, cells.y)
            departures = [waves, *(waves * one.value[:, None] for one in self.departing)]
        level = self.level(cells.x, cells.y, own_values)
        self.n_level = level.shape[1]
        self.X = np.hstack([level, cells.effects, own.reshape(len(own), -1), *departures])
        # centre the wide level at least squares: sums of squares then keep their digits
        at = frame.u(cells.x), frame.v(cells.y)
        course = np.stack([np.ones(len(cells.x)), asymptotic(np.array(TYPICAL_ALPHA), cells.x, frame)], axis=1)
        start = np.hstack([course, *(one.centred(one.value, *at) for one in cells.columns)])
        self.steepness_sd, slope, free = WIDE, 0.0, np.ones(start.shape[1], dtype=bool)
        if frame.one_size:
            slope = self.steepness_sd = -SIZE_SLOPE * float(np.abs(cells.mean).mean())
            free[1] = False
        self.shift = np.full(len(free), slope)
        self.shift[free] = np.linalg.lstsq(start[:, free], cells.mean - slope * start[:, 1], rcond=None)[0]
        self.y = cells.mean - start @ self.shift
        # cells of nearly equal variance form a group
        with np.errstate(divide="ignore"):
            bins = np.round(np.where(cells.variance > 0, np.log(cells.variance), -60.0) / BINS)
        _, self.group, self.count = np.unique(bins, return_inverse=True, return_counts=True)
        self.group_variance = np.bincount(self.group, cells.variance) / self.count
        members = [np.flatnonzero(self.group == k) for k in range(len(self.count))]
        self.XX = np.array([self.X[m].T @ self.X[m] for m in members])
        self.Xy = np.array([self.X[m].T @ self.y[m] for m in members])
        self.yy = np.array([self.y[m] @ self.y[m] for m in members])
        if self.ends is None:
            self.ends = np.array([frame.low, frame.high])

    def law(self, p: np.ndarray, y: np.ndarray) -> FormEffect:
        """The columns of h at depths y (M,), for powers p (N,)."""
        return FormEffect.of(self.form, self.frame, self.ends, p, y)

    def departures(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """(n, J·M) waves of δ times S, size first."""
        both = self.frame.in_x(x)[:, :, None] * self.frame.in_y(y)[:, None, :]
        return both.reshape(len(x), -1) * self.effect.scale(x, y)[:, None]

    @property
    def n_own(self) -> int:
        """Number of waves in x of the scatter that shapes of a depth share; none where each depth has one shape."""
        return min(OWN_WAVES, MOST_OWN // len(self.depths)) if "depthwise" in self.names else 0

    @property
    def moving(self) -> list[ModelColumn]:
        """Columns that move the best depth."""
        return [one for one in self.cells.columns if one.moves_depth] if self.form.effect else []

    @property
    def departing(self) -> list[ModelColumn]:
        """Columns with departures of their own."""
        return [one for one in self.cells.columns if one.own_departures] if self.form.effect else []

    @property
    def tail(self) -> int:
        """Number of the last coefficients, s and c, of a form with an effect of depth."""
        return 2 if self.form.effect else 0

    @property
    def n_changing(self) -> int:
        """Number of columns that η changes: the asymptote, the law's columns, and their interactions."""
        return 1 + (4 + 3 * len(self.moving) if self.form.effect else 0)

    def eta(self, z: np.ndarray) -> dict[str, np.ndarray]:
        """Hyperparameters (N,) of the standardised ``z`` (N, n), at most ``FARTHEST`` from their prior means."""
        z = np.clip(z, -FARTHEST, FARTHEST)
        found = {name: np.full(len(z), value) for name, value in self.typical.items() if name not in self.names}
        found.update(zip(self.names, (self.prior_mean + self.prior_sd * z).T, strict=True))
        if not self.form.law:
            found["p"], found["a"] = np.ones(len(z)), np.zeros(len(z))
        return found

    def level(self, x: np.ndarray, y: np.ndarray, z: Mapping[str, np.ndarray]) -> np.ndarray:
        """(n, ·) columns of the level of nets at x, y (n,) but for its asymptote: one, the waves, the further columns
        at their values ``z``, (n,) each or zero, and their own waves."""
        columns, waves = self.cells.columns, self.frame.in_x(x)
        values, at = [z.get(one.name, np.zeros(len(x))) for one in columns], (self.frame.u(x), self.frame.v(y))
        own = [one.columns(value, *at) for one, value in zip(columns, values, strict=True)]
        of_waves = [waves[:, 1:] * value[:, None] for one, value in zip(columns, values, strict=True) if one.own_level]
        return np.hstack([np.ones((len(x), 1)), waves[:, 1:], *own, *of_waves])

    def changing(self, eta: Mapping[str, np.ndarray]) -> np.ndarray:
        """(N, K, ·) columns that η changes, with s and c last."""
        x, frame = self.cells.x, self.frame
        level = asymptotic(np.exp(eta["alpha"])[:, None], x, frame)
        if not self.form.effect:
            return level[..., None]
        decayed = decay(eta["a"][:, None], x, frame)
        low, high, c, s = (one * decayed for one in self.law(eta["p"], self.depths).columns(x, self.at_depth))
        moved = [one * column.value for column in self.moving for one in (low, high, c)]
        return np.stack([level, low, high, *moved, s, c], axis=-1)

    def prior_sds(self, eta: Mapping[str, np.ndarray]) -> np.ndarray:
        """(N, P) prior sd of every coefficient: η's columns but c, the fixed ones, c."""
        n, E, frame = len(eta["alpha"]), self.effect.E, self.frame
        one = np.ones((n, 1))
        steepness = one * self.steepness_sd
        waves = np.exp(eta["level"])[:, None] * frame.smooth_sd(np.log(LEVEL_LENGTH * frame.xs))[1:]
        own = [one * c.sds[k] for c in self.cells.columns for k in c.kept]
        waving = [waves for c in self.cells.columns if c.own_level]
        fixed = [one * WIDE, waves, *own, *waving, one * np.ones(self.cells.known.shape[1])]
        if self.cells.shared is not None:
            fixed.append(np.exp(eta["shared"])[:, None] * np.ones(self.cells.shared.shape[1]))
        shared = np.exp(eta["scatter"] + eta["depthwise"])[:, None] * frame.smooth_sd(np.log(frame.xs))[: self.n_own]
        fixed.append(np.tile(shared, len(self.depths)))
        if not self.form.effect:
            return np.hstack([steepness, *fixed])
        moving = [E * np.exp(eta["interact"])[:, None] * SHIFT_SD for _ in self.moving]
        # unit of the skew is c, about as large as E
        law, skew = [one * ENDS_SD * E, one * ENDS_SD * E, *moving], np.exp(eta["skew"])[:, None] * E
        rough = np.exp(eta["share"])[:, None] * frame.rough_sd(eta["len_y"])  # in units of S
        waves = (frame.smooth_sd(eta["len_x"])[:, :, None] * rough[:, None, :]).reshape(n, -1)
        # departures of another arm's depth effects from the first arm's, not from the form
        of_arm = OWN_DEPARTURES * np.exp(eta["interact"] - eta["share"])[:, None] * waves
        return np.hstack([steepness, *law, *fixed, waves, *(of_arm for _ in self.departing), skew, one * GAIN_SD * E])

    def variances(self, eta: Mapping[str, np.ndarray]) -> np.ndarray:
        """(N, groups) variance of a mean of each group, nats²."""
        scatter, scale = (np.exp(2.0 * eta[name])[:, None] for name in ("scatter", "scale"))
        return scatter + NO_SCATTER**2 + scale * self.group_variance

    def factored(
        self, z: np.ndarray, root: Callable[[np.ndarray], np.ndarray] = rooted
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(roots (N, P + 1, P + 1), log densities up to the bounds of c and s (N,), prior sds (N, P)) at z (N, n).

        The last row of a root is L⁻¹b, b = A'·V⁻¹·y in standard units; its corner the root of 1 + the unexplained part.
        The corner's 1 keeps it positive. root: gives the roots; ``rooted`` gives one to every precision.
        """
        eta, cells = self.eta(z), self.cells
        s = self.prior_sds(eta)
        V = self.changing(eta)
        variance = self.variances(eta)
        weight = 1.0 / variance
        WV = V * weight[:, self.group, None]
        XX, Xy = np.tensordot(weight, self.XX, 1), weight @ self.Xy
        VX, VV, Vy = np.swapaxes(WV, 1, 2) @ self.X, np.swapaxes(WV, 1, 2) @ V, np.einsum("nkv,k->nv", WV, self.y)
        # order: η's columns, the fixed columns, s and c; only the lower triangle is read
        n, f, v = len(z), XX.shape[1], V.shape[2]
        a = v - self.tail
        b, size = a + f, v + f
        M = np.zeros((n, size + 1, size + 1))
        M[:, :a, :a], M[:, b:size, :a], M[:, b:size, b:size] = VV[:, :a, :a], VV[:, a:, :a], VV[:, a:, a:]
        M[:, a:b, :a], M[:, a:b, a:b], M[:, b:size, a:b] = np.swapaxes(VX[:, :a], 1, 2), XX, VX[:, a:]
        M[:, size, :a], M[:, size, a:b], M[:, size, b:size] = Vy[:, :a], Xy, Vy[:, a:]
        M[:, :, :size] *= s[:, None, :]
        M[:, :size, :size] *= s[:, :, None]
        M[:, np.arange(size), np.arange(size)] += 1.0
        M[:, size, size] = weight @ self.yy + 1.0
        roots = root(M)  # solve_triangular reads the lower triangle
        diagonal = np.diagonal(roots, axis1=1, axis2=2)
        value = -0.5 * (diagonal[:, -1] ** 2 - 1.0 + np.log(variance) @ self.count)
        value -= np.log(diagonal[:, :-1]).sum(axis=1) + 0.5 * (z**2).sum(axis=1)
        if 0.0 < cells.df < math.inf:  # χ² of the replicates
            value -= cells.df * (eta["scale"] + 0.5 * np.exp(-2.0 * eta["scale"]))
        return roots, value, s

    def density(self, z: np.ndarray) -> np.ndarray:
        """(N,) log posterior of z (N, n), the coefficients integrated out, up to a constant that all forms share."""
        size = self._at_once
        return np.concatenate([self._density(z[k : k + size]) for k in range(0, len(z), size)])

    def _density(self, z: np.ndarray) -> np.ndarray:
        """``density`` of a few nodes; NOTHING where a precision is singular."""
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # far from the mode: no weight
                roots, value, s = self.factored(z, np.linalg.cholesky)
        except np.linalg.LinAlgError:
            return np.full(1, NOTHING) if len(z) == 1 else np.concatenate([self._density(one[None]) for one in z])
        if self.form.law:
            value = value + self._bounded(roots, s).log_share()
        return np.where(np.isfinite(value), value, NOTHING)

    @property
    def _at_once(self) -> int:
        """Number of nodes whose precisions are formed at once."""
        return max(1, CHUNK // max(1, 12 * len(self.y), self.X.shape[1] ** 2))

    def locate(self, z: np.ndarray) -> None:
        """Linearise at the posterior mean of the transitions at z (n,)."""
        if not self.form.effect:
            return
        w = self.drawn(z[None], np.zeros((1, self.n_changing + self.X.shape[1])), np.ones(1, dtype=int))[0]
        least = 0.05 * self.effect.E
        gain = max(w[-1], least) if self.form.law else math.copysign(max(abs(w[-1]), least), w[-1])
        away = np.clip(w[1:3] / gain, -3.0 * self.frame.xs, 3.0 * self.frame.xs)
        self.ends = self.frame.x0 + away

    def drawn(self, z: np.ndarray, normal: np.ndarray, count: np.ndarray) -> np.ndarray:
        """(T, P) coefficients at z (N, n), one row for each row of the standard ``normal`` (T, P): the first
        ``count[0]`` rows belong to the first node, and so on; zeros give the mean. A law's c and s
        come last, so that bounding their normals needs no correction of the others."""
        from scipy.linalg.lapack import dtrtrs

        found, size = np.array(normal), self._at_once
        edges = np.concatenate([[0], np.cumsum(count)])
        for k in range(0, len(z), size):
            roots, _, s = self.factored(z[k : k + size])
            own = count[k : k + size]
            rows = found[edges[k] : edges[k + len(own)]]
            away = roots[:, -1, :-1]
            if self.form.law and rows.any():
                rows[:, -2:] = self._bounded(roots, s).cut(rows[:, -2:], own)
            rows += away.repeat(own, axis=0)
            for root, first, last in zip(roots, edges[k:] - edges[k], edges[k + 1 :] - edges[k], strict=False):
                # the transpose of a lower root, as columns: nothing is copied
                rows[first:last] = dtrtrs(np.ascontiguousarray(root[:-1, :-1]).T, rows[first:last].T)[0].T
            rows *= s.repeat(own, axis=0)
        start = self.n_changing - self.tail
        other = start + self.frame.waves[0]
        found[:, start] += self.shift[0]
        found[:, other : other + len(self.shift) - 2] += self.shift[2:]
        return found

    @staticmethod
    def _bounded(roots: np.ndarray, s: np.ndarray) -> Bounded:
        """Bounds of s and c at ``roots``, whose prior sds are ``s`` (N, P)."""
        return Bounded(roots[:, -3:, -3:], MOST_SKEW * s[:, -1] / s[:, -2])

    def held_out(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """((G,) place of the first mean of each group that shares effects, (G,) residual of the group, (sizes, 2) ln
        axis of each size and the slope in ln L of its residuals) from the others' prediction at z (n,), in standard
        deviations. Sizes with fewer than three depths are left out.

        With C the covariance of the means, the coefficients of columns B that are zero outside a group or a size are
        (B'C⁻¹B)⁻¹B'C⁻¹y (Dubrule 1983, "Cross validation of kriging in a unique neighborhood"); of a mean alone that is
        (C⁻¹y)_k / √(C⁻¹)_kk. C⁻¹ = W − W·A·M⁻¹·A'·W, M the precision of the standardised coefficients.
        """
        from scipy.linalg import solve_triangular

        roots, _, s = self.factored(z[None])
        eta = self.eta(z[None])
        changing = self.changing(eta)[0]
        end = changing.shape[1] - self.tail
        A = np.hstack([changing[:, :end], self.X, changing[:, end:]]) * s[0]
        weight = (1.0 / self.variances(eta)[0])[self.group]
        half = solve_triangular(roots[0, :-1, :-1], (A * weight[:, None]).T, lower=True, check_finite=False)
        left = weight * self.y - half.T @ roots[0, -1, :-1]
        x, y = self.cells.x, self.cells.y
        size, slopes = np.round((x - x.min()) / ONE_SIZE), []
        for own in (size == k for k in np.unique(size)):
            if len(np.unique(y[own])) < 3:
                continue
            B = np.stack([np.ones(own.sum()), y[own] - y[own].mean()], axis=1)
            covariance = np.linalg.inv((B.T * weight[own]) @ B - (half[:, own] @ B).T @ (half[:, own] @ B))
            slopes.append((x[own].mean(), (covariance @ (B.T @ left[own]))[1] / math.sqrt(covariance[1, 1])))
        apart = np.eye(len(y)) if self.cells.shared is None else np.hstack([self.cells.shared != 0.0, np.eye(len(y))])
        first, of = np.unique(apart.argmax(axis=1), return_index=True, return_inverse=True)[1:]
        member = np.eye(len(first))[of]
        # ROUNDING: a group that the others leave open
        own = np.maximum(weight @ member - ((half @ member) ** 2).sum(axis=0), ROUNDING * (weight @ member))
        return first, (left @ member) / np.sqrt(own), np.array(slopes).reshape(-1, 2)

    def reference(self, x: np.ndarray) -> np.ndarray:
        """Part of the level subtracted from the losses at first, nats."""
        return self.shift[1] * asymptotic(np.array(TYPICAL_ALPHA), x, self.frame)

    def split(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Coefficients (T, P) by name: asymptote (T,), level (T, ·) of the columns of ``level``, odd (T, odd depths)
        nats, law (T, 4) of A_lo, A_hi, c, s, moves (T, moving, 3), departures (T, 1 + departing, J, M) of the first arm
        and of the columns with their own."""
        (J, M), T, effect = self.frame.waves, len(rows), self.form.effect
        start = self.n_changing - self.tail
        first = start + self.n_level + self.cells.factors.shape[1]
        odd = rows[:, first : first + len(self.cells.odd)] * [sd for _, sd in self.cells.odd]
        found = {"asymptote": rows[:, 0], "level": rows[:, start : start + self.n_level], "odd": odd}
        if not effect:
            shapes = {"law": (T, 4), "moves": (T, 0, 3), "departures": (T, 1, J, M)}
            return {**found, **{name: np.zeros(shape) for name, shape in shapes.items()}}
        return {
            **found,
            "law": rows[:, [1, 2, -1, -2]],
            "moves": rows[:, 3:start].reshape(T, -1, 3),
            "departures": rows[:, rows.shape[1] - 2 - (1 + len(self.departing)) * J * M : -2].reshape(T, -1, J, M),
        }


def models(cells: Cells, forms: Sequence[str] = tuple(FORMS)) -> dict[str, LossModel]:
    """One model per form, on one scale of the effect of depth."""
    frame = Frame.of(cells.x, cells.y)
    effect = Effect.of(cells, frame)
    return {name: LossModel(cells, FORMS[name], frame, effect) for name in forms}
