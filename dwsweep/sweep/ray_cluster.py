"""A Ray cluster: joined or started, what its nodes have, and whether it is still there."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Mapping
from typing import Any

from dwsweep.errors import InputError
from dwsweep.sweep import policy

ANSWER_SECONDS = 2.0  # for a connection to the head
_DEVICES = ("GPU", "TPU")


class RayCluster:
    """The cluster at ``address``, as ``ray.init`` takes it (or ``RAY_ADDRESS``); else one of this machine alone.

    ``needs`` is what a task asks for: one node's devices divided by ``workers``, its GPUs, its TPU chips, or on a
    cluster without either its CPUs. It is reckoned for the smallest node that is there at the start and stands for the
    whole call: what a pack reserves decides the last bits of its result, and must not follow from the nodes left.

    A cluster that is started here listens on the loopback interface alone. One that is joined listens on its nodes'
    other interfaces too, and whoever reaches its ports may run code there.

    Raises:
        InputError: Ray is not installed, no cluster answers at the address, or it has no node with devices.
    """

    def __init__(self, address: str | None, workers: int = 1) -> None:
        address = address or os.environ.get("RAY_ADDRESS")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        if not address:
            os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # else Ray takes no loopback address
        try:
            import ray
        except ImportError:
            raise InputError("--executor: 'ray'; its package is not installed: pip install 'dwsweep[ray]'") from None
        self.ray: Any = ray
        _check_address(address)
        here = {} if address else {"_node_ip_address": "127.0.0.1", "include_dashboard": False}
        try:
            quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
            ray.init(address=address or "local", ignore_reinit_error=True, **quiet, **here)
        except Exception as error:
            reason = policy.first_line(str(error))
            raise InputError(f"--address: {address}; allowed: a Ray cluster that answers ({reason})") from None
        context = ray.get_runtime_context()
        self._own_node = context.get_node_id()
        self._head = ""
        with contextlib.suppress(Exception):  # a Ray client has none, and its own way to find out
            self._head = str(context.gcs_address)
        self.needs = needs(self._nodes(), workers)
        if not self.needs:
            ray.shutdown()
            raise InputError(
                f"--address: {address}; none of its live nodes has a CPU, GPU or TPU for tasks; allowed: a cluster "
                "with a worker node (have the autoscaler keep one: what a pack asks for follows from it)"
            )

    def places(self) -> int:
        """How many tasks the cluster, as it is now, can run at a time; one may always wait for a node."""
        found = sum(int(min(node.get(k, 0.0) / need for k, need in self.needs.items())) for node in self._nodes())
        return max(1, found)

    def own_node_gone(self) -> str | None:
        """Whether the Ray of this machine, through which everything goes, has died; says how."""
        if not self.answers():
            return None  # Ray's answer would not come
        alive = {node["NodeID"] for node in self.ray.nodes() if node["Alive"]}
        return None if self._own_node in alive else "the raylet of this machine has died"

    def answers(self) -> bool:
        """Whether somebody listens where the head is; asked without Ray, whose calls block while it is away."""
        host, colon, port = self._head.rpartition(":")
        if not (colon and port.isdecimal()):
            return True
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_SECONDS).close()
        except OSError:
            return False
        return True

    def leave(self) -> None:
        """Leave the cluster, and end the one that was started here. From a lost one it takes some seconds."""
        self.ray.shutdown()

    def _nodes(self) -> list[Mapping[str, float]]:
        return [node["Resources"] for node in self.ray.nodes() if node["Alive"]]


def _check_address(address: str | None) -> None:
    """Refuse an address where nobody listens: Ray itself would try for ten minutes.

    Raises:
        InputError: nobody answers there.
    """
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if not (colon and port.isdigit()):
        return  # "auto", or none
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except OSError as error:
        line = f"--address: {address}; nobody answers there ({error}); allowed: HOST:PORT of a Ray cluster, or auto"
        raise InputError(line) from None


def needs(nodes: list[Mapping[str, float]], workers: int) -> dict[str, float]:
    """What a task asks for, by resource: the smallest node's devices, of the best kind there is, over ``workers``."""
    for name in (*_DEVICES, "CPU"):
        amounts = [node[name] for node in nodes if node.get(name)]
        if amounts:
            share = min(amounts) / workers
            return {name: max(1.0, float(int(share))) if share >= 1 else share}
    return {}
