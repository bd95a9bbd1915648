"""A Slurm cluster of this host alone: munged, slurmctld and slurmd in the foreground, on loopback.

Debian and Ubuntu: ``apt-get install slurm-wlm munge``. Nothing outside one folder is written, so the host's own Slurm,
if it has one, is not touched.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DAEMONS = ("munged", "slurmctld", "slurmd")
NODE = "one"
CPUS, GPUS = 4, 2
"""More CPUs than the host may have, and devices that are none: Slurm hands out numbers."""
REQUEUE_SECONDS = 5  # a requeued job waits as long; by default 120

CONFIGURATION = """\
ClusterName=alone
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket,cred_expire={requeue_seconds}
# listen on the addresses in this file alone
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/builtin
GresTypes=gpu
ReturnToService=1
KillWait=60
SlurmdParameters=config_overrides
NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 CPUs={cpus} Gres=gpu:{gpus} State=UNKNOWN
PartitionName=all Nodes={node} Default=YES MaxTime=UNLIMITED State=UP
"""


def missing() -> str | None:
    """Why there can be no cluster here; None where there can."""
    absent = [name for name in (*DAEMONS, "sbatch") if program(name) is None]
    if absent:
        return f"{', '.join(absent)} not installed: apt-get install slurm-wlm munge"
    return None if os.getuid() == 0 else "Slurm's daemons start jobs as root only"


def program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


@dataclass(frozen=True)
class SlurmCluster:
    """A running cluster, by the folder that holds its configuration, its state and its logs."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """What makes Slurm's commands speak to this cluster."""
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def ask(self, *command: str, **more: str) -> str:
        """What one of Slurm's commands prints.

        Raises:
            RuntimeError: it failed; with what it said.
        """
        asked = subprocess.run(
            command, env={**os.environ, **self.environment, **more}, capture_output=True, text=True, timeout=60
        )
        if asked.returncode:
            raise RuntimeError(f"{' '.join(command)}: {asked.stderr.strip()}")
        return asked.stdout.strip()

    def node_state(self) -> str:
        return self.ask("sinfo", "--noheader", "--Format=StateLong").strip()


@contextlib.contextmanager
def running(folder: Path) -> Iterator[SlurmCluster]:
    """A cluster in ``folder``, ended with the block.

    Raises:
        RuntimeError: a daemon ended, or the node did not come up within half a minute.
    """
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    controller_port, node_port = _free_ports()
    text = CONFIGURATION.format(
        folder=folder,
        controller_port=controller_port,
        node_port=node_port,
        requeue_seconds=REQUEUE_SECONDS,
        node=NODE,
        host=socket.gethostname().partition(".")[0],
        cpus=CPUS,
        gpus=GPUS,
    )
    (folder / "slurm.conf").write_text(text)
    for k in range(GPUS):
        (folder / f"gpu{k}").touch()  # a device is a file that is there
    (folder / "gres.conf").write_text(f"NodeName={NODE} Name=gpu File={folder}/gpu[0-{GPUS - 1}]\n")
    munge = [f"--{kind}={folder}/munge.{kind.partition('-')[0]}" for kind in ("key-file", "socket", "pid-file")]
    commands = [
        ["munged", "--foreground", "--force", *munge, f"--log-file={folder}/munge.log", f"--seed-file={folder}/seed"],
        ["slurmctld", "-D", "-i", "-f", f"{folder}/slurm.conf"],
        ["slurmd", "-D", "-N", NODE, "-f", f"{folder}/slurm.conf"],
    ]
    cluster = SlurmCluster(folder)
    with contextlib.ExitStack() as stack:
        daemons = []
        for command in commands:
            log = stack.enter_context(open(folder / f"{command[0]}.out", "wb"))
            daemons.append(subprocess.Popen([program(command[0]) or "", *command[1:]], stdout=log, stderr=log))
            stack.callback(_end, daemons[-1])
            time.sleep(1.0)  # the next one asks this one
        deadline = time.monotonic() + 30
        state = ""
        while state != "idle":
            ended = [command[0] for command, daemon in zip(commands, daemons, strict=True) if daemon.poll() is not None]
            if ended or time.monotonic() > deadline:
                said = (folder / f"{(ended or ['slurmctld'])[0]}.out").read_text()[-2000:]
                raise RuntimeError(f"ended: {ended}; node: {state or 'unknown'}\n{said}")
            time.sleep(0.5)
            with contextlib.suppress(RuntimeError):
                state = cluster.node_state()
        try:
            yield cluster
        finally:
            with contextlib.suppress(RuntimeError):
                cluster.ask("scancel", "--user", "root")
                time.sleep(1.0)


def _end(daemon: subprocess.Popen[bytes]) -> None:
    daemon.terminate()
    try:
        daemon.wait(10)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()


def _free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        for each in (one, other):
            each.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]
