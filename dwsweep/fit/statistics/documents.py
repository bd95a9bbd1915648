"""Held-out documents: the error that another sample of them would make in the mean losses of a sweep directory.

Shapes are evaluated on the same text, so most of this error cancels between them.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from dwsweep import paths
from dwsweep.fit.data.one_unit import IN_NATS
from dwsweep.fit.data.runs import Run, Setup

# documents of the row's checkpoint give its loss up to rounding; documents of another checkpoint do not
TOLERANCE = 2e-3
FEW_DOCUMENTS = 30  # fewer documents give no estimate for another sample


class Documents(NamedTuple):
    """covariance (K, K) of the setups' mean losses over samples of documents, nats², or None; note: a sentence on
    its use. number: count of documents, None if unknown. influence: setup → (n,) nats, share of each document in
    its mean loss. tokens: (n,) tokens of each document."""

    covariance: np.ndarray | None
    note: str
    number: int | None = None
    influence: Mapping[Setup, np.ndarray] = MappingProxyType({})
    tokens: np.ndarray | None = None

    @property
    def warnings(self) -> list[str]:
        if self.number is None or self.number >= FEW_DOCUMENTS:
            return []
        what = f"{self.number} document{'s' if self.number > 1 else ''}"
        claim = (
            "one text shows no spread over texts, so nothing is claimed about other texts"
            if self.number == 1
            else "the spread of losses over texts is hardly known, so few differences can be claimed"
        )
        return [f"held-out set: {what}, at least {FEW_DOCUMENTS} are advised; {claim}"]


def document_covariance(directory: str, runs: Sequence[Run]) -> Documents:
    """Error of the setups' mean losses due to the sample of documents.

    With per-document summed nats s_j and tokens t_j, loss = Σs/Σt, and its sampling variance is that of the influence
    u_j = (s_j − loss·t_j)/Σt summed over documents; covariances between shapes are kept, so differences are paired on
    the same text. Setups are in the order of ``build_curves``. None if a run lacks its documents.npy, the
    numbers of documents differ, or they belong to another checkpoint (their mean is not the row's loss).
    """
    root = paths.as_path(directory) / "runs"
    setups = sorted({run.setup for run in runs}, key=lambda setup: setup.order)
    influence: dict[Setup, list[np.ndarray]] = {setup: [] for setup in setups}
    size: int | None = None
    for run in runs:
        run_id = run.row.get("run_id")
        path = root / str(run_id) / "documents.npy"
        if run_id is None or not path.exists():
            return Documents(None, "not used: not every run has its documents.npy")
        try:
            values = np.lib.format.read_array(io.BytesIO(paths.read_bytes(path)), allow_pickle=False).astype(float)
            if values.ndim != 2 or values.shape[1] != 2 or not len(values) or not np.isfinite(values).all():
                raise ValueError(f"shape {values.shape}, or values that are not finite")
        except (OSError, ValueError) as error:  # an empty or shortened file, or no such array
            return Documents(None, f"not used: documents.npy of {run_id} cannot be read: {error}")
        if size is not None and len(values) != size:
            return Documents(None, "not used: the runs were evaluated on different numbers of documents")
        size = len(values)
        total = values[:, 1].sum()
        loss = values[:, 0].sum() / total
        nats = float(run.row.get(IN_NATS, run.loss))
        if abs(loss - nats) > TOLERANCE * max(1.0, abs(nats)):
            what = f"gives loss {loss:.4g}, the table {nats:.4g}"
            return Documents(None, f"not used: documents.npy of {run_id} {what}")
        influence[run.setup].append(run.loss / nats * (values[:, 0] - loss * values[:, 1]) / total)
    return of_influences({setup: np.mean(influence[setup], axis=0) for setup in setups}, values[:, 1])


def of_influences(influence: Mapping[Setup, np.ndarray], tokens: np.ndarray) -> Documents:
    """The covariance of the setups' mean losses, in their order; influence (n,) of each, tokens (n,)."""
    U = np.stack(list(influence.values()))
    n = U.shape[1]
    if n == 1:
        return Documents(None, "not used: a single held-out document", 1)
    return Documents(over_documents(U), f"paired over {n} held-out documents", n, influence, tokens)


def over_documents(U: np.ndarray) -> np.ndarray:
    """(K, K) covariance of sums of influences U (K, n) over samples of n documents, nats²."""
    n = U.shape[1]
    return U @ U.T * n / (n - 1)
