"""Between two packs of a process: the next one's program is compiled ahead, and memory is given back.

The host compiles while the device trains, and has nothing else to do meanwhile. On a CPU a compilation would take its
cores from training, and be counted in training's clock.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import threading

import jax

from dwsweep.data.token_store import Store
from dwsweep.plan import Pack
from dwsweep.train.choices import with_kernel
from dwsweep.train.program import Blueprint, Program, compile_program

SPARE_FRACTION = 0.5
"""Share of the device's memory left free for compilers, which try kernels out on the device."""


class Ahead:
    """Look-ahead: at most one program that is being compiled or ready."""

    def __init__(self) -> None:
        self._program: Program | None = None
        self._thread: threading.Thread | None = None

    def begin(self, pack: Pack, store: Store, current: Program) -> None:
        """Compile ``pack``'s program in a thread, unless that could disturb ``current``; returns at once."""
        wanted, hardware = pack.execution.compile_ahead, current.choices.hardware
        if wanted is False or (wanted is None and hardware.on_cpu) or jax.process_count() > 1:
            return
        limit, used = hardware.memory_bytes, current.memory_bytes
        if limit is not None and (used is None or used > (1 - SPARE_FRACTION) * limit):
            return
        # any failure here is raised again, with its cause, at this pack's turn
        with contextlib.suppress(Exception):
            blueprint = Blueprint.of(pack, store)
            with_kernel(blueprint.choices, pack)  # measured now, while the device is idle, and remembered
            self._thread = threading.Thread(target=self._compile, args=(blueprint, store), daemon=True)
            self._thread.start()

    def _compile(self, blueprint: Blueprint, store: Store) -> None:
        with contextlib.suppress(Exception):
            self._program = compile_program(blueprint, store)
            _ = self._program.run_init

    @property
    def is_busy(self) -> bool:
        """True while a compilation is under way."""
        return self._thread is not None and self._thread.is_alive()

    def take(self, pack: Pack, store: Store) -> Program | None:
        """Program of exactly this pack and store, if that was compiled; waits for its end."""
        if self._thread is not None:
            self._thread.join()
        program, self._program, self._thread = self._program, None, None
        if program is None or program.blueprint.pack != pack or program.store.path != store.path:
            return None
        return program


AHEAD = Ahead()
"""The look-ahead of this process, which trains one pack after another."""


def release(keep_compiled: bool = False) -> None:
    """Drop a pack's remains: objects in cycles, JAX's caches of traced and compiled functions, freed heap.

    A worker trains one shape after another and should not grow with each.
    Compilers free most of what they took, but in pieces that glibc keeps for later: over 14 shapes that were compiled
    anew a process grew from 428 to 589 MB without this, and from 313 to 352 MB with it. Programs in the cache on disk
    stay where they are.

    ``keep_compiled``: another thread is compiling, whose caches must not be taken from under it.
    """
    gc.collect()
    if not keep_compiled:
        jax.clear_caches()
    with contextlib.suppress(OSError, AttributeError):  # other C libraries lack malloc_trim
        ctypes.CDLL("libc.so.6").malloc_trim(0)
