"""The golden record of fits lists what moved beyond its errors, and nothing else."""

from __future__ import annotations

from typing import Any

from golden import moved


def record(**row: Any) -> dict[str, Any]:
    return {"table": "a", "exit": 0, "error": "", "text": ["first"], "rows": {"best depth at 3e+07": row}}


def lines(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    return list(moved(record(**before), record(**after)))


def test_a_number_moves_beyond_two_monte_carlo_errors_or_a_share_of_its_interval() -> None:
    row = {"depth": 10.0, "depth_low": 8.0, "depth_high": 12.0, "depth_error": 0.01}
    assert not lines(row, {**row, "depth": 10.2})
    (line,) = lines(row, {**row, "depth": 10.4})
    assert line.startswith("best depth at 3e+07: depth 10 → 10.4 ")
    assert not lines(row, {**row, "depth_low": 8.05}) and lines(row, {**row, "depth_low": 8.1})


def test_an_end_that_opens_a_word_or_a_row_that_leaves_is_listed_and_a_column_is_not() -> None:
    row = {"depth": 10.0, "depth_low": 8.0, "depth_high": 12.0, "status": "crossed", "old": 3.0}
    assert lines(row, {**row, "depth_high": None}) and lines(row, {**row, "status": "undecided"})
    assert not lines(row, {key: value for key, value in row.items() if key != "old"})
    gone = {**record(**row), "rows": {}}
    assert list(moved(record(**row), gone)) == ["best depth at 3e+07: has no row now"]
    assert list(moved(record(**row), {**record(**row), "text": ["other"]}))
