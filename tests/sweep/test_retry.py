"""Decisions by cause, and how a cause is told."""

from __future__ import annotations

import errno
import signal
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from sweep_tools import make_plan

from dwsweep.errors import InputError
from dwsweep.records.pack import PackState
from dwsweep.sweep import local_worker, policy
from dwsweep.sweep.events import Ended
from dwsweep.sweep.policy import decide, split

PACK = make_plan(grid__seeds=5, train__batch_size=12).packs[0]


def chained(outer: Exception, inner: Exception) -> Exception:
    try:
        raise outer from inner
    except Exception as error:
        return error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RuntimeError("boom"), "crash"),
        (InputError("train.seq_len: 5; allowed: more"), "error"),
        (MemoryError(), "oom"),
        (RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 bytes."), "oom"),
        # as a TPU's compiler says that a program does not fit
        (RuntimeError("RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 18G of 15.75G hbm."), "oom"),
        (RuntimeError("XLA:TPU compile permanent error. Ran out of memory in memory space vmem."), "oom"),
        (chained(RuntimeError("step failed"), MemoryError()), "oom"),
        (OSError(errno.ENOSPC, "No space left on device"), "disk_full"),
        (OSError(errno.EFBIG, "File too large"), "disk_full"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "disk_full"),
        # storage libraries report a full disk by the status of an exhausted memory
        (ValueError("RESOURCE_EXHAUSTED: Error writing 'd/0' [OS error 28: No space left on device]"), "disk_full"),
        (chained(OSError("checkpoint could not be written"), OSError(errno.ENOSPC, "full")), "disk_full"),
        (OSError(errno.EIO, "Input/output error"), "interrupted"),
    ],
)
def test_the_cause_of_an_exception(error: Exception, kind: str) -> None:
    assert policy.of_exception(error)[0] == kind


@pytest.mark.parametrize(
    ("returncode", "log", "kills", "kind"),
    [
        (-signal.SIGKILL, "", 0, "crash"),  # somebody's kill -9
        (-signal.SIGKILL, "", 1, "oom"),  # the kernel's
        (-signal.SIGSEGV, "", 0, "crash"),
        (-signal.SIGABRT, "terminate called after throwing an instance of 'std::bad_alloc'", 0, "oom"),
        (-signal.SIGABRT, "LLVM ERROR: out of memory", 0, "oom"),
        (-signal.SIGABRT, "F1 Termination timeout for `all reduce Key{1}` of 40 seconds exceeded. Exiting", 0, "oom"),
        (1, "OSError: [Errno 28] No space left on device", 0, "disk_full"),
        (1, "", 0, "crash"),
    ],
)
def test_the_cause_of_an_exit(returncode: int, log: str, kills: int, kind: str) -> None:
    assert policy.of_exit(returncode, log, kills)[0] == kind


def test_the_tail_of_a_log_is_of_this_attempt(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_text("RESOURCE_EXHAUSTED, long ago\n")
    start = log.stat().st_size
    with log.open("a") as file:
        file.writelines(f"line {k}\n" for k in range(100))
    tail = policy.last_lines(policy.tail(log, start)).splitlines()
    assert tail[-1] == "line 99" and len(tail) == policy.LOG_TAIL_LINES
    assert policy.tail(log, log.stat().st_size) == "" == policy.tail(tmp_path / "none")


def walk(ended: Ended, checkpoints: list[int], max_retries: int = 2) -> list[str]:
    """The states of a pack whose every attempt ends like this, with the newest checkpoint after each."""
    state, seen = PackState(), []
    for checkpoint in checkpoints:
        decision = decide(PACK, state, ended, max_retries, checkpoint=checkpoint)
        state = decision.state
        seen.append(state.state)
    return seen


def test_a_crash_is_retried_max_retries_times() -> None:
    crash = Ended(policy.CRASH, "boom")
    assert walk(crash, [0, 0, 0]) == ["pending", "pending", "failed"]
    assert walk(crash, [0], max_retries=0) == ["failed"]
    # each new checkpoint starts the count anew
    assert walk(crash, [1, 2, 3, 4, 4, 4]) == ["pending"] * 5 + ["failed"]


@pytest.mark.parametrize(
    ("kind", "state"),
    [(policy.DISK_FULL, "interrupted"), (policy.INTERRUPTED, "interrupted"), (policy.DONE, "done")],
)
def test_a_full_disk_an_interruption_and_an_end_cost_no_retry(kind: str, state: str) -> None:
    decision = decide(PACK, PackState(retries=1), Ended(kind, "why"), 0)
    assert decision.state.state == state and not decision.queue and decision.state.retries == 1
    assert decision.stops_sweep == (kind == policy.DISK_FULL)


def test_a_microbatch_that_the_devices_cannot_go_below_ends_the_halving() -> None:
    """Four devices share a microbatch of 12: asked for 3 or fewer, the trainer uses 4 again and again."""
    alone = replace(PACK, replicas=PACK.replicas[:1])
    for pack, action in ((alone, "given up at 4 sequences, the fewest"), (PACK, "split into")):
        state = decide(pack, PackState(), Ended(policy.OOM, "too big", microbatch=4), 2).state
        decision = decide(pack, state, Ended(policy.OOM, "too big", microbatch=4), 2)
        assert state.microbatch == 2 and decision.state.events[-1].action.startswith(action)


def test_a_split_leaves_out_finished_replicas() -> None:
    finished = {name for replica in PACK.replicas[:2] for name in replica.run_ids}
    parts = split(PACK, finished)
    assert [[replica.seed for replica in part.replicas] for part in parts] == [[2, 3], [4]]
    rest = {name for replica in PACK.replicas[:4] for name in replica.run_ids}
    assert [len(part.replicas) for part in split(PACK, rest)] == [1]


CUDA = "CUDA_VISIBLE_DEVICES"
CORES, OWN_CORES = "JAX_NUM_CPU_DEVICES", local_worker.CORES_VARIABLE
ONE_CHIP = {"TPU_PROCESS_BOUNDS": "1,1,1", "TPU_CHIPS_PER_PROCESS_BOUNDS": "1,1,1"}


def on_cores(count: int) -> dict[str, str]:
    return {CORES: str(count), "NPROC": str(count)}


def fake_devices(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return root


@pytest.mark.parametrize(
    ("names", "environment", "workers", "expected"),
    [
        (["nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"], {}, 2, [{CUDA: "0"}, {CUDA: "1"}]),
        (["nvidia0", "nvidia1"], {CUDA: "1"}, 2, [{CUDA: "1", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.450"}] * 2),
        (["nvidia0", "nvidia1"], {}, 1, [on_cores(4)]),
        (["nvidia0", "nvidia1", "nvidia2"], {}, 2, [{CUDA: "0"}, {CUDA: "1"}]),  # equal parts
        (["accel0", "accel1"], {}, 8, [{"TPU_VISIBLE_CHIPS": str(k), **ONE_CHIP} for k in range(2)]),
        (["nvidia0"], {"JAX_PLATFORMS": "cpu"}, 2, [on_cores(2)] * 2),
        ([], {}, 3, [on_cores(1)] * 3),
        ([], {}, 5, [on_cores(1)] * 4),  # one per core
        ([], {CORES: " "}, 1, [on_cores(4)]),
        ([], {CORES: "1"}, 1, [{"NPROC": "4"}]),
        ([], {"NPROC": "8"}, 1, [{CORES: "4"}]),
        ([], {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}, 2, [{"NPROC": "2"}] * 2),
    ],
)
def test_devices_are_shared(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    names: list[str],
    environment: dict[str, str],
    workers: int,
    expected: list[dict[str, Any]],
) -> None:
    monkeypatch.setattr(local_worker, "cores", lambda: [0, 1, 2, 3])
    shares = local_worker.shares(workers, environment, fake_devices(tmp_path, *names))
    cores = [share.pop(OWN_CORES).split(",") for share in shares if OWN_CORES in share]
    assert shares == expected
    assert len({len(part) for part in cores}) <= 1
    assert sum(map(len, cores)) == len({*chain(*cores)})


@pytest.mark.parametrize("cores", [1, 2, 3, 4, 7])
def test_how_many_packs_are_left_does_not_show_in_the_devices(monkeypatch: pytest.MonkeyPatch, cores: int) -> None:
    """Devices, threads and the number of cores decide the last bits; the shard decides only which cores they are."""
    monkeypatch.setattr(local_worker, "cores", lambda: list(range(10, 10 + cores)))
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    everyone = [worker.environment for worker in local_worker.local_workers(2, 9)]
    assert len(everyone) == min(2, cores)  # never two on one core
    for found in everyone:
        share = max(1, cores // 2)
        assert found == {**on_cores(share), OWN_CORES: found[OWN_CORES]} and len(found[OWN_CORES].split(",")) == share
    for first in range(3):
        (alone,) = local_worker.local_workers(2, 1, first)
        assert alone.environment == everyone[first % len(everyone)]


@pytest.mark.parametrize("wrong", ["0", "-1", "abc", "2.5", "²"])
def test_a_number_of_cpu_devices_that_is_none_is_refused(wrong: str) -> None:
    with pytest.raises(InputError, match=f"JAX_NUM_CPU_DEVICES: '{wrong}'; allowed: a number of devices from 1 on"):
        local_worker.each_core_a_device(2, {CORES: wrong})
