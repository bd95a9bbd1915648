"""One model over several hosts, seen from inside a worker: the processes of a slice that train each pack together.

Every host starts the same command with ``--distributed``. ``jax.distributed`` finds the others by itself on TPU, Slurm
and Open MPI; elsewhere it is told by ``DWSWEEP_COORDINATOR`` (HOST:PORT of process 0), ``DWSWEEP_PROCESSES`` (how many)
and ``DWSWEEP_PROCESS`` (which, from 0). Process 0 decides and writes; what it decides reaches the others by broadcast.
Only a worker imports this module's JAX.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Mapping
from typing import Any

from dwsweep.errors import InputError

HEARTBEAT_SECONDS = 30  # until the others are ended when one process is gone
_VARIABLES = ("DWSWEEP_COORDINATOR", "DWSWEEP_PROCESSES", "DWSWEEP_PROCESS")


def settings(environment: Mapping[str, str]) -> dict[str, Any]:
    """Arguments of ``jax.distributed.initialize``; none where it is to find them by itself.

    Raises:
        InputError: some of the variables are missing or are no numbers.
    """
    given = [environment.get(name) for name in _VARIABLES]
    if not any(given):
        return {}
    try:
        coordinator, processes, process = given[0], int(given[1] or ""), int(given[2] or "")
    except ValueError:
        processes, process = 0, 0
    if not given[0] or not 0 <= process < processes:
        shown = " ".join(f"{name}={value or ''}" for name, value in zip(_VARIABLES, given, strict=True))
        raise InputError(f"--distributed: {shown}; allowed: all three, with 0 ≤ process < processes")
    return {"coordinator_address": coordinator, "num_processes": processes, "process_id": process}


class Group:
    """The processes of a slice; made once, before anything else of JAX is used."""

    def __init__(self) -> None:
        import jax

        if os.environ.get("JAX_PLATFORMS") == "cpu":
            jax.config.update("jax_cpu_collectives_implementation", "gloo")
        arguments = settings(os.environ)
        if "heartbeat_timeout_seconds" in inspect.signature(jax.distributed.initialize).parameters:
            arguments["heartbeat_timeout_seconds"] = HEARTBEAT_SECONDS
        jax.distributed.initialize(**arguments)
        self.index = jax.process_index()
        self.count = jax.process_count()
        self._asked = 0

    def share(self, message: dict[str, Any] | None) -> dict[str, Any]:
        """What process 0 says, in every process; the others give None and wait."""
        import numpy as np
        from jax.experimental.multihost_utils import broadcast_one_to_all

        data = json.dumps(message).encode() if self.index == 0 else b""
        size = int(broadcast_one_to_all(np.int32(len(data))))
        buffer = np.zeros(size, np.uint8)
        buffer[: len(data)] = np.frombuffer(data, np.uint8)
        return json.loads(np.asarray(broadcast_one_to_all(buffer), np.uint8).tobytes())

    def must_stop(self, wish: bool) -> int | None:
        """The first process that wishes to stop, or None; the same answer in every process, which all have to ask.

        A preemption notice to any of them counts: JAX takes SIGTERM for one, and agrees on the step.
        """
        import numpy as np
        from jax.experimental import multihost_utils

        self._asked += 1
        wishes = np.asarray(multihost_utils.process_allgather(np.int32(wish))).reshape(-1)
        if wishes.any():
            return int(np.argmax(wishes))
        try:
            noticed = multihost_utils.reached_preemption_sync_point(self._asked)
        except RuntimeError:  # no preemption service here
            return None
        return self.index if noticed else None

    def leave(self) -> None:
        import jax

        jax.distributed.shutdown()
