"""Held-out losses per document: how far another sample of documents would move the differences between shapes."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dwsweep.fit.cells import Run

# documents that belong to the row give its loss up to rounding; those of another checkpoint of the run do not
TOLERANCE = 2e-3
FEW_DOCUMENTS = 30  # below which their spread says little about another sample of them


class Documents(NamedTuple):
    """covariance (K, K) of the candidates' mean losses over samples of documents, nats², or None; note: a sentence on
    its use; number: of the documents, None where it is not known."""

    covariance: np.ndarray | None
    note: str
    number: int | None = None

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
    from etils import epath

    root = epath.Path(directory) / "runs"
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
    U = np.stack([np.mean(influence[candidate], axis=0) for candidate in candidates])
    n = U.shape[1]
    if n == 1:
        return Documents(None, "not used: a single held-out document", 1)
    return Documents(U @ U.T * n / (n - 1), f"paired over {n} held-out documents", n)
