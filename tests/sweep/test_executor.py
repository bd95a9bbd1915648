"""The executor on workers of the test: who is hired, who is told to stop, and that an attempt always ends."""

from __future__ import annotations

import queue
from collections.abc import Iterator

import pytest

from dwsweep.sweep.events import Ended, Event, Job
from dwsweep.sweep.executor import Executor


class Hand:
    """A worker whose attempts end as the test says."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.ends: queue.Queue[Ended | Exception] = queue.Queue()

    def train(self, job: Job, on_event: object) -> Ended:
        self.heard.append(job.pack_id)
        end = self.ends.get(timeout=30)
        if isinstance(end, Exception):
            raise end
        return end

    def stop(self, cause: str) -> None:
        self.heard.append(cause)

    def kill(self) -> None:
        self.heard.append("kill")

    def close(self) -> None:
        self.heard.append("close")


@pytest.fixture
def hands() -> list[Hand]:
    return [Hand(), Hand()]


@pytest.fixture
def posts() -> queue.Queue[tuple[str, Event]]:
    return queue.Queue()


@pytest.fixture
def executor(hands: list[Hand], posts: queue.Queue[tuple[str, Event]]) -> Iterator[Executor]:
    yield Executor(iter(hands).__next__, len(hands), lambda pack_id, event: posts.put((pack_id, event)))


def job(pack_id: str) -> Job:
    return Job(pack_id, "/nowhere", "/nowhere")


def test_an_idle_worker_comes_before_a_new_one_and_all_leave(
    executor: Executor, hands: list[Hand], posts: queue.Queue[tuple[str, Event]]
) -> None:
    for pack_id in ("a", "b"):
        executor.start(job(pack_id))
        hands[0].ends.put(Ended("done"))
        assert posts.get(timeout=30) == (pack_id, Ended("done"))
    executor.close()
    assert hands[0].heard == ["a", "b", "close"] and hands[1].heard == []


def test_a_worker_that_raises_ends_its_attempt(
    executor: Executor, hands: list[Hand], posts: queue.Queue[tuple[str, Event]]
) -> None:
    executor.start(job("a"))
    hands[0].ends.put(MemoryError("of the parent"))
    pack_id, ended = posts.get(timeout=30)
    assert pack_id == "a" and isinstance(ended, Ended) and ended.kind == "oom"
    assert hands[0].heard == ["a", "kill"]


def test_a_stop_reaches_who_works_and_who_comes_later_and_a_kill_its_pack_alone(
    executor: Executor, hands: list[Hand], posts: queue.Queue[tuple[str, Event]]
) -> None:
    executor.start(job("a"))
    executor.stop("Ctrl-C")
    executor.start(job("b"))
    executor.kill("b")
    for hand in hands:
        hand.ends.put(Ended("interrupted"))
    assert {posts.get(timeout=30)[0] for _ in hands} == {"a", "b"}
    assert {*hands[0].heard} == {"a", "Ctrl-C"} and {*hands[1].heard} == {"b", "Ctrl-C", "kill"}
