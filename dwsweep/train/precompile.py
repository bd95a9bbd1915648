"""The next pack's programs, compiled on the host while this one trains on the device.

Compilation takes seconds a shape, and on an accelerator the host has nothing else to do meanwhile. On a CPU it would
take its cores from training, and be counted in training's clock.
"""

from __future__ import annotations

import contextlib
import threading

import jax

from dwsweep.data.token_store import Store
from dwsweep.plan import Pack
from dwsweep.train.engine import Engine, memory_limit

SPARE_FRACTION = 0.5
"""Of the device's memory that must be left beside the running program: compilers try kernels out on the device."""


class Ahead:
    """At most one engine that is being compiled, or is ready to be taken."""

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._thread: threading.Thread | None = None

    def begin(self, pack: Pack, store: Store, current: Engine) -> None:
        """Compile ``pack``'s programs in a thread, unless that could disturb ``current``; returns at once."""
        wanted = pack.execution.compile_ahead
        if wanted is False or (wanted is None and current.on_cpu) or jax.process_count() > 1:
            return
        limit, used = memory_limit(current.device), current.memory_bytes
        if limit is not None and (used is None or used > (1 - SPARE_FRACTION) * limit):
            return
        # whatever goes wrong here will be raised again, with its cause, when it is this pack's own turn
        with contextlib.suppress(Exception):
            engine = Engine(pack, store)
            engine.choose_kernel()  # measured now, while the device is idle
            self._engine = engine
            self._thread = threading.Thread(target=self._compile, args=(engine,), daemon=True)
            self._thread.start()

    def _compile(self, engine: Engine) -> None:
        try:
            engine.compile()
        except Exception:
            self._engine = None

    @property
    def is_busy(self) -> bool:
        """Whether a compilation is under way."""
        return self._thread is not None and self._thread.is_alive()

    def take(self, pack: Pack, store: Store) -> Engine | None:
        """The engine of exactly this pack and store, if that is what was compiled; waits for its end."""
        if self._thread is not None:
            self._thread.join()
        engine, self._engine, self._thread = self._engine, None, None
        if engine is None or engine.pack != pack or engine.store.path != store.path:
            return None
        return engine


AHEAD = Ahead()
"""Of this process, which trains one pack after another."""
