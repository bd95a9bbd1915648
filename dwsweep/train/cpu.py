"""CPU as the device of a sweep: its layers that are written out, and bfloat16, refused where it takes longer than
float32.

Knows no JAX, so that the parent of a sweep can ask before anything trains.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata

from dwsweep.errors import InputError
from dwsweep.records import footing
from dwsweep.records.pack import Pack

BFLOAT16_INSTRUCTIONS = ("avx512_bf16", "amx_bf16", "avx10_2", "bf16", "svebf16")
"""Names that Linux gives a CPU's instructions for products of bfloat16."""
SLOW_BFLOAT16 = "DWSWEEP_SLOW_BFLOAT16"
"""Environment variable that allows bfloat16 on a CPU all the same, to try out an accelerator's sweep."""
UNROLLED_WIDTH, UNROLLED_DEPTH = 128, 12
"""On a CPU, the layers of models at least this wide and at most this deep are unrolled: weights that exceed a core's
cache are then not copied out of their stack for each microbatch. Measured gains: L8 d128 5 %, L12 d192 11 %, L6 d192
17 %, L4 d256 22 %, for some 0.7 s of compilation per layer; L24 d64 none, and four layers at a time lose 5–18 %."""


def unrolled(pack: Pack) -> int:
    """Layers of a pack that are written out on a CPU; 1: all in a loop."""
    depth = pack.shape.depth
    by_default = depth if depth <= UNROLLED_DEPTH and pack.shape.width >= UNROLLED_WIDTH else 1
    return min(pack.execution.unroll or by_default, depth)


def check_bfloat16(packs: Iterable[Pack], instructions: Sequence[str] | None = None) -> None:
    """Refuse packs in bfloat16 on a CPU where their steps take longer than those of float32.

    A CPU without instructions for it rounds, and then multiplies in float32. With them steps take 0.94 to 1.09 of
    float32's where all layers are written out, and more in a loop (one core of an EPYC, batch of 16 × 128: L2 d64 1.13,
    L12 d96 1.8, L24 d128 2.4, L24 d64 2.9).

    Args:
        instructions: of the CPU; None: of this one. Empty if the system gives none: only the loop counts.

    Raises:
        InputError: it has none of BFLOAT16_INSTRUCTIONS, or layers run in a loop; and the environment does not ask for
        it all the same.
    """
    asked = [pack for pack in packs if pack.train.precision == "bfloat16"]
    if not asked or os.environ.get(SLOW_BFLOAT16):
        return
    found = footing.here(None, None).instructions if instructions is None else instructions
    looped = list(dict.fromkeys(pack.shape.label for pack in asked if unrolled(pack) < pack.shape.depth))
    if found and not set(BFLOAT16_INSTRUCTIONS) & set(found):
        why = "this CPU has no instructions for its products, so that it is slower than float32 and gains nothing"
    elif looped:
        more = f" and {len(looped) - 1} more shape{'s' * (len(looped) > 2)}" if len(looped) > 1 else ""
        why = (
            f"on a CPU {looped[0]}{more} would take longer than in float32: in nets narrower than {UNROLLED_WIDTH} or "
            f"deeper than {UNROLLED_DEPTH} layers run in a loop, and steps take 1.1 times as long at L2 d64, 2.4 at "
            "L24 d128, 2.9 at L24 d64"
        )
    else:
        return
    raise InputError(f"train.precision: bfloat16; {why}; allowed: float32, or {SLOW_BFLOAT16}=1 in the environment")


def only_cpus(environment: Mapping[str, str]) -> bool:
    """True if JAX surely finds nothing but CPUs here: it is told so, or no plugin for an accelerator is installed."""
    asked = environment.get("JAX_PLATFORMS", "").strip()
    if asked:
        return asked == "cpu"
    if any(environment.get(name) for name in ("PJRT_NAMES_AND_LIBRARY_PATHS", "TPU_LIBRARY_PATH")):
        return False
    if importlib.util.find_spec("jax_plugins") or importlib.util.find_spec("libtpu"):
        return False
    return not metadata.entry_points(group="jax_plugins")
