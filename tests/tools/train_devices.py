"""Tiny packs trained as a program of their own, on as many devices as the first orders say.

``python train_devices.py ORDERS.json …``: what to train, one after another, and where each result goes. Several devices
of a CPU are a setting of a whole process, so tests start this one. It compiles as the tests do,
or, where the first orders say ``optimized``, as a sweep does.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any


def main(each: list[dict[str, Any]]) -> None:
    first = each[0]
    os.environ["JAX_PLATFORMS"] = "cpu"
    flags = [] if first.get("optimized") else os.environ.get("XLA_FLAGS", "").split()
    os.environ["XLA_FLAGS"] = " ".join([*flags, f"--xla_force_host_platform_device_count={first.get('devices', 1)}"])
    for orders in each:
        Path(orders["result"]).write_text(json.dumps(trained(orders)))
        if "copy_to" in orders:
            shutil.copytree(orders["directory"], orders["copy_to"])


def trained(orders: dict[str, Any]) -> dict[str, Any]:
    """Result of one pack on the devices of this process."""
    from train_support import Kept, make_pack, make_spec

    from dwsweep.data.token_store import Store
    from dwsweep.train.pack_trainer import train_pack

    store = Store.open(orders["store"])
    spec = make_spec(**orders.get("sections", {}))
    pack = make_pack(store, spec, replicas=tuple((seed, 1e-2) for seed in range(orders.get("replicas", 2))))
    kept = Kept()
    asked = iter([False] * orders.get("dispatches", 10**6))
    outcome = train_pack(
        pack,
        store,
        orders["directory"],
        kept,
        should_stop=lambda: next(asked, True),
        dispatch_steps=orders.get("dispatch_steps"),
    )
    content = {
        "facts": kept.facts,
        "resumes": kept.resumes,
        "notes": kept.notes,
        "losses": {run_id: kept.losses(run_id) for run_id in kept.rows},
        "results": {run_id: result.loss for run_id, result in kept.results.items()},
        "interrupted": outcome.interrupted,
        "step": outcome.step,
    }
    if orders.get("conditions"):
        from dwsweep.train.program import Blueprint

        text = Blueprint.of(pack, store).compiled_heads().as_text()
        content["collectives"] = sorted(name for name in ("all-gather", "all-reduce", "all-to-all") if name in text)
    if orders.get("init_memory"):
        from dwsweep.train.program import Blueprint

        blueprint = Blueprint.of(pack, store)
        analysis = blueprint.compiled_init().memory_analysis()
        content["init_memory"] = {"temporary": analysis.temp_size_in_bytes, "state": blueprint.state_bytes}
    return json.loads(json.dumps(content))  # the same from here and from another process


if __name__ == "__main__":
    main([json.loads(Path(argument).read_text()) for argument in sys.argv[1:]])
