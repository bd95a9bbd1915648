"""What a sweep directory says beyond its table: held-out losses per document, and whether training had settled."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from dwsweep import paths
from dwsweep.fit.cells import Run

# documents that belong to the row give its loss up to rounding; those of another checkpoint of the run do not
TOLERANCE = 2e-3
FEW_DOCUMENTS = 30  # below which their spread says little about another sample of them
FALLING_SHARE = 0.05  # of the loss, from the fifth of training before the last to the last
FEWEST_POINTS = 5


class Documents(NamedTuple):
    """covariance (K, K) of the candidates' mean losses over samples of documents, nats², or None; note: a sentence on
    its use; number: of the documents, None where it is not known. influence: candidate → (n,) nats, what each document
    adds to its mean loss; tokens (n,) of each document."""

    covariance: np.ndarray | None
    note: str
    number: int | None = None
    influence: Mapping[tuple, np.ndarray] = MappingProxyType({})
    tokens: np.ndarray | None = None

    @property
    def warnings(self) -> list[str]:
        if self.number is None or self.number >= FEW_DOCUMENTS:
            return []
        what = f"{self.number} document{'s' if self.number > 1 else ''}"
        claim = (
            "one text has no spread, so nothing is claimed about others"
            if self.number == 1
            else "what other texts would say is hardly known, so few things can be claimed"
        )
        return [f"held-out set: {what}, at least {FEW_DOCUMENTS} are advised; {claim}"]


def document_covariance(directory: str, runs: Sequence[Run]) -> Documents:
    """How far another sample of documents would move the candidates' mean losses.

    With per-document summed nats s_j and tokens t_j, loss = Σs/Σt, and its sampling variance is that of the influence
    u_j = (s_j − loss·t_j)/Σt summed over documents; covariances between shapes are kept, so differences are paired on
    the same text. Candidates are in the order of ``build_curves``. None where a run lacks its documents.npy, the
    numbers of documents differ, or they belong to another checkpoint (their mean is not the row's loss).
    """
    root = paths.as_path(directory) / "runs"
    candidates = sorted({run.candidate for run in runs}, key=lambda c: (c[0], c[1], -1.0 if c[2] is None else c[2]))
    influence: dict[tuple, list[np.ndarray]] = {candidate: [] for candidate in candidates}
    size: int | None = None
    for run in runs:
        run_id = run.row.get("run_id")
        path = root / str(run_id) / "documents.npy"
        if run_id is None or not path.exists():
            return Documents(None, "not used: not every run has its documents.npy")
        try:
            values = np.load(io.BytesIO(path.read_bytes()), allow_pickle=False).astype(float)
        except (OSError, ValueError) as error:  # cut short, or no array
            return Documents(None, f"not used: documents.npy of {run_id} cannot be read: {error}")
        if values.ndim == 1:
            values = np.stack([values, np.ones_like(values)], axis=1)
        if values.ndim != 2 or values.shape[1] != 2 or not len(values) or not np.isfinite(values).all():
            what = f"has shape {values.shape} or values that are not finite"
            return Documents(None, f"not used: documents.npy of {run_id} {what}")
        if size is not None and len(values) != size:
            return Documents(None, "not used: the runs were evaluated on different numbers of documents")
        size = len(values)
        total = values[:, 1].sum()
        loss = values[:, 0].sum() / total
        if abs(loss - run.loss) > TOLERANCE * max(1.0, abs(run.loss)):
            what = f"gives loss {loss:.4g}, the table {run.loss:.4g}"
            return Documents(None, f"not used: documents.npy of {run_id} {what}")
        influence[run.candidate].append((values[:, 0] - loss * values[:, 1]) / total)
    return of_influences({candidate: np.mean(influence[candidate], axis=0) for candidate in candidates}, values[:, 1])


def of_influences(influence: Mapping[tuple, np.ndarray], tokens: np.ndarray) -> Documents:
    """The covariance of the candidates' mean losses, in their order; influence (n,) of each, tokens (n,)."""
    U = np.stack(list(influence.values()))
    n = U.shape[1]
    if n == 1:
        return Documents(None, "not used: a single held-out document", 1)
    return Documents(U @ U.T * n / (n - 1), f"paired over {n} held-out documents", n, influence, tokens)


def still_falling(directory: str, runs: Sequence[Run]) -> list[str]:
    """A warning where the loss still fell steeply at the end of training, judged at the largest shape of each depth
    (the smaller ones settle earlier); nothing where the directory holds no training curves."""
    falls = {}
    for depth in sorted({run.depth for run in runs}):
        run = max((run for run in runs if run.depth == depth), key=lambda run: run.x)
        fall = last_fall(directory, run)
        if fall is not None and fall > FALLING_SHARE:
            falls[f"{run.depth}×{run.width:g}"] = fall
    if not falls:
        return []
    listed = ", ".join(f"{shape} by {100 * fall:.0f} %" for shape, fall in falls.items())
    return [
        f"STILL FALLING: the last fifth of training lowered the training loss steeply ({listed}); which depth is ahead "
        f"may change with longer training"
    ]


def last_fall(directory: str, run: Run) -> float | None:
    """By what share of it the mean training loss fell from the fourth to the last fifth of a run's steps."""
    run_id = run.row.get("run_id")
    if run_id is None:
        return None
    points = []
    for row in paths.read_lines(paths.as_path(directory) / "runs" / str(run_id) / "metrics.jsonl"):
        step, loss = row.get("step"), row.get("loss")
        if isinstance(step, int) and isinstance(loss, int | float) and math.isfinite(loss):
            points.append((step, float(loss)))
    if len(points) < FEWEST_POINTS:
        return None
    end = max(step for step, _ in points)
    before = [loss for step, loss in points if 0.6 * end < step <= 0.8 * end]
    last = [loss for step, loss in points if step > 0.8 * end]
    if not before or not last:
        return None
    means = [math.fsum(losses) / len(losses) for losses in (before, last)]
    return (means[0] - means[1]) / means[0] if means[0] > 0 else None
