"""Measured decode latency: the line is found again, prices shapes, and a table that does not show it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from dwsweep.errors import InputError
from dwsweep.guide import Options, answer
from dwsweep.guide.latency import Latency

SHAPES = [(12, 768), (24, 1024), (24, 2048), (32, 2560), (32, 4096), (48, 1600)]


def rows(per_layer: float = 0.67, per_weight: float = 0.30, unit: str = "ms") -> list[dict[str, float]]:
    return [
        {"layers": L, "hidden_size": d, f"decode_{unit}": 1.3 + per_layer * L + per_weight * 12 * L * d * d / 1e9}
        for L, d in SHAPES
    ]


def test_the_line_of_a_table_is_found_again_in_seconds() -> None:
    found = Latency.of(rows())
    assert (found.any_net, found.per_layer, found.per_weight) == pytest.approx((1.3e-3, 0.67e-3, 0.30e-12), rel=1e-6)
    assert "1.3 ms + 0.67 ms per layer + 0.3 ms per 1e9 weights (measured, 6 shapes, ± 0%)" in found.said
    assert Latency.of(rows(unit="us")).per_layer == pytest.approx(0.67e-6)


def test_a_shape_costs_the_time_that_was_measured(tmp_path: Path) -> None:
    """At equal latency layers of 0.67 ms make a shallow net the best; by the bytes that it reads the deep one leads."""
    given = answer([3e9], options=Options(latency=Latency.of(rows())))
    for shape in given.budgets[0].candidates:
        wanted = 1.3e-3 + 0.67e-3 * shape.depth + 0.30e-12 * shape.n_params
        assert shape.decode_seconds_per_token == pytest.approx(wanted)
    assert given.assumptions.latency.said.startswith("1.3 ms + 0.67 ms per layer")
    at_decode = [answer([3e9], options=Options(at="decode", latency=one)) for one in (None, Latency.of(rows()))]
    assert at_decode[1].budgets[0].recommended.depth < at_decode[0].budgets[0].recommended.depth  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (rows()[:3], "latency: .* 3 shapes with a time; at least 4 are needed"),
        ([{"depth": L, "width": 64 * L, "ms": 1.0 * L} for L in (4, 4, 4, 4, 4)], "1 shape with a time"),
        ([{**row, "prefill_s": 1.0} for row in rows()], "must have one column of seconds per token"),
        ([{"depth": 8, "ms": 1.0}], "latency: .* column 'width' is missing"),
        ([{**row, "decode_ms": 5.0} for row in rows()], "grow with neither layers nor weights"),
    ],
)
def test_a_table_that_shows_no_line_is_refused(table: list[dict[str, float]], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Latency.of(table)


def test_a_measured_latency_and_a_time_of_a_layer_exclude_each_other() -> None:
    with pytest.raises(InputError, match="both given; allowed: one of them"):
        Options(latency=Latency.of(rows()), layer_seconds=1e-3)
