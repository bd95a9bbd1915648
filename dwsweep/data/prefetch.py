"""Windows read ahead in a thread, for token streams that are not held in device memory."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from types import TracebackType

import numpy as np

from dwsweep.data.batches import gather, n_windows, window_indices
from dwsweep.data.store import ShardedTokens


class Prefetcher:
    """Iterates over the batches of steps ``first_step`` … ``first_step + n_steps − 1``.

    Yields arrays of shape (k, batch_size, seq_len + 1), the tokens' dtype, k = ``chunk_steps`` (fewer at the end): the
    same windows as ``gather(tokens, window_indices(…), seq_len)``. A thread stays at most ``depth`` chunks ahead. Use
    it as a context manager, so that the thread ends with the loop.
    """

    def __init__(
        self,
        tokens: np.ndarray | ShardedTokens,
        *,
        seed: int,
        first_step: int,
        n_steps: int,
        batch_size: int,
        seq_len: int,
        chunk_steps: int = 1,
        depth: int = 2,
        host: tuple[int, int] | None = None,
    ) -> None:
        if chunk_steps < 1 or depth < 1:
            raise ValueError(f"chunk_steps, depth: {chunk_steps}, {depth}; at least 1")
        self._tokens, self._seed, self._host = tokens, seed, host
        self._first, self._stop, self._chunk = first_step, first_step + n_steps, chunk_steps
        self._batch_size, self._seq_len = batch_size, seq_len
        self._windows = n_windows(len(tokens), seq_len)
        self._ready: queue.Queue[np.ndarray | BaseException | None] = queue.Queue(depth)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="dwsweep-prefetch", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            for step in range(self._first, self._stop, self._chunk):
                n = min(self._chunk, self._stop - step)
                indices = window_indices(self._seed, step, n, self._batch_size, self._windows, self._host)
                if not self._put(gather(self._tokens, indices, self._seq_len)):
                    return
            self._put(None)
        except BaseException as error:  # raised again where the batches are used
            self._put(error)

    def _put(self, value: np.ndarray | BaseException | None) -> bool:
        while not self._closing.is_set():
            try:
                self._ready.put(value, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def __iter__(self) -> Iterator[np.ndarray]:
        while not self._closing.is_set():
            value = self._ready.get()
            if value is None:
                self.close()
            elif isinstance(value, BaseException):
                self.close()
                raise value
            else:
                yield value

    def close(self) -> None:
        """Stops the thread; nothing more is read."""
        self._closing.set()
        self._thread.join()

    def __enter__(self) -> Prefetcher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
