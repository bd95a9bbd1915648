"""Output that nobody takes, or whose encoding has not the characters, ends nothing."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dwsweep import terminal


@contextmanager
def stdout_on(monkeypatch: pytest.MonkeyPatch, descriptor: int, encoding: str = "utf-8") -> Iterator[None]:
    """Standard output as the interpreter makes it, on this descriptor."""
    with io.TextIOWrapper(io.BufferedWriter(io.FileIO(descriptor, "w", closefd=False)), encoding) as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        monkeypatch.setattr(sys, "__stdout__", stream)
        yield
        monkeypatch.undo()


@contextmanager
def closed_pipe() -> Iterator[int]:
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


def test_a_closed_pipe_and_a_full_disk_are_survived(monkeypatch: pytest.MonkeyPatch) -> None:
    with closed_pipe() as pipe, open("/dev/full", "wb") as full:
        for descriptor in (pipe, full.fileno()):
            with stdout_on(monkeypatch, descriptor):
                terminal.console().print("[b]first[/b] line")
                terminal.tolerant_streams()
                terminal.console().print("second line")
                print("third line", flush=True)
                terminal.console().print("fourth line")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_characters_that_the_encoding_lacks_are_replaced(monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    reader, writer = os.pipe()
    with stdout_on(monkeypatch, writer, encoding):
        terminal.tolerant_streams()
        terminal.console().print("1 run → é")
        print("2 runs → é", flush=True)
    os.close(writer)
    with open(reader, encoding=encoding) as shown:
        text = shown.read()
    assert text == ("1 run ? ?\n2 runs ? ?\n" if encoding == "ascii" else "1 run ? é\n2 runs ? é\n")


def test_a_stream_of_somebody_else_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    mine = sys.stdout
    terminal.tolerant_streams()
    assert sys.stdout is mine
    terminal.console().print("seen")
    assert capsys.readouterr().out == "seen\n"


def test_a_width_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert terminal.console(stderr=True).width == terminal.PLAIN_WIDTH
    monkeypatch.setenv("COLUMNS", "77")
    assert terminal.console().width == 77
