"""Held-out losses per document: how far another sample of documents would move the differences between shapes."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np

from dwsweep.fit.cells import Run

# documents that belong to the row give its loss up to rounding; those of another checkpoint of the run do not
TOLERANCE = 2e-3


def document_covariance(directory: str, runs: Sequence[Run]) -> tuple[np.ndarray | None, str]:
    """Covariance (K, K) of the candidates' mean losses over samples of documents, and a sentence on its use.

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
            return None, "not used: not every run has its documents.npy"
        values = np.load(io.BytesIO(path.read_bytes()), allow_pickle=False).astype(float)
        if values.ndim == 1:
            values = np.stack([values, np.ones_like(values)], axis=1)
        if values.ndim != 2 or values.shape[1] != 2 or len(values) < 2 or not np.isfinite(values).all():
            return None, f"not used: documents.npy of {run_id} has shape {values.shape} or values that are not finite"
        if size is not None and len(values) != size:
            return None, "not used: the runs were evaluated on different numbers of documents"
        size = len(values)
        total = values[:, 1].sum()
        loss = values[:, 0].sum() / total
        if abs(loss - run.loss) > TOLERANCE * max(1.0, abs(run.loss)):
            return None, f"not used: documents.npy of {run_id} gives loss {loss:.4g}, the table {run.loss:.4g}"
        influence[run.candidate].append((values[:, 0] - loss * values[:, 1]) / total)
    U = np.stack([np.mean(influence[candidate], axis=0) for candidate in candidates])
    n = U.shape[1]
    return U @ U.T * n / (n - 1), f"paired over {n} held-out documents"
