"""Notices of silent workers, and the time that a sweep still takes; clocks of the test."""

from __future__ import annotations

import pytest

from dwsweep.records.pack import PackProgress
from dwsweep.sweep import silence
from dwsweep.sweep.events import Begun, Compiling, Evaluating
from dwsweep.sweep.forecast import Pace
from dwsweep.sweep.silence import Silence


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_worker_that_stands_still_is_named_with_its_process_and_log(clock: Clock) -> None:
    quiet = Silence(clock)
    quiet.begin("p", "L2-d64-h2", "sweep/packs/p/log.txt")
    quiet.heard("p", Begun(4711))
    quiet.heard("p", Compiling(4))
    clock.now += silence.NOTICE_SECONDS - 1
    assert list(quiet.notices()) == []
    clock.now += 1
    assert list(quiet.notices()) == [
        "note: L2-d64-h2: nothing heard for 5 min while compiling (process 4711, log sweep/packs/p/log.txt)"
    ]
    assert list(quiet.notices()) == []  # once for each span
    clock.now += silence.NOTICE_SECONDS
    assert "10 min while compiling" in next(quiet.notices())
    quiet.heard("p", PackProgress(1, 30))
    clock.now += silence.NOTICE_SECONDS
    assert "5 min while training" in next(quiet.notices())
    quiet.heard("p", Evaluating(0.5))
    clock.now += silence.NOTICE_SECONDS
    assert "5 min while evaluating" in next(quiet.notices())
    assert not list(quiet.unresponsive())  # nobody asked it to stop
    quiet.end("p")
    clock.now += 1e6
    assert not list(quiet.notices())


def test_a_worker_that_does_not_heed_a_stop_is_ended_and_one_that_does_is_waited_for(clock: Clock) -> None:
    quiet = Silence(clock)
    for name in ("deaf", "slow", "compiles"):
        quiet.begin(name, name, "log.txt")
        quiet.heard(name, Compiling(4) if name == "compiles" else PackProgress(6, 30))
    clock.now += 200
    quiet.stop_asked()  # what they were silent before does not count
    assert not list(quiet.unresponsive())
    clock.now += silence.START_KILL_SECONDS
    assert list(quiet.unresponsive()) == ["compiles"]  # there is nothing to save
    quiet.end("compiles")
    clock.now += silence.STOP_NOTICE_SECONDS - silence.START_KILL_SECONDS
    assert [line.split(":")[1] for line in quiet.notices()] == [" deaf", " slow"]
    quiet.heard("slow", PackProgress(7, 30))
    clock.now += silence.STOP_KILL_SECONDS - silence.STOP_NOTICE_SECONDS
    assert list(quiet.unresponsive()) == ["deaf"] and list(quiet.unresponsive()) == []
    assert [line for line in quiet.notices() if "slow: has not answered the request to stop for 240 s" in line]


def test_time_left_counts_what_packs_take_beside_their_steps(clock: Clock) -> None:
    """Four equal packs of 10 s of start and compilation, 20 s of steps, 5 s of evaluation, two side by side."""
    pace = Pace(clock)
    for name in "abcd":
        pace.expect(name, 7.0)

    def work_through(*names: str) -> list[float | None]:
        begun, left = clock.now, []
        for name in names:
            pace.started(name)
        for second in range(36):
            clock.now = begun + second
            for name in names:
                if second >= 10 and second <= 30:
                    pace.stepped(name, (second - 10) / 20)
                if second == 35:
                    pace.ended(name, True)
            left.append(pace.left())
        return left

    first = work_through("a", "b")
    assert first[10] is None  # no rate yet
    assert first[20] == pytest.approx(10 + 30)  # an end has not been seen yet
    assert first[35] == pytest.approx(35)
    second = work_through("c", "d")
    assert second == pytest.approx([35.0 - k for k in range(36)])


def test_a_pack_that_was_split_no_longer_counts(clock: Clock) -> None:
    pace = Pace(clock)
    pace.expect("p", 10.0)
    pace.started("p")
    pace.stepped("p", 0.5)
    pace.ended("p", False)
    pace.forget("p")
    for name in ("p-a", "p-b"):
        pace.expect(name, 5.0)
    assert pace.fraction() == 0.0
    for name in ("p-a", "p-b"):
        pace.started(name)
        pace.stepped(name, 1.0)
        pace.ended(name, True)
    assert pace.fraction() == 1.0
