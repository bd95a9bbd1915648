"""The figure of `guide`: drawn from an answer, a panel a budget, nothing without budgets."""

from __future__ import annotations

from xml.etree import ElementTree

from dwsweep.guide import answer
from dwsweep.report.figures import laws


def test_one_panel_a_budget_and_none_of_a_verdict(tmp_path) -> None:
    assert laws.draw_guide(answer([], ["96x12288"]), tmp_path) == []
    paths = laws.draw_guide(answer([3e8, 3e9], law="levine2020"), tmp_path)
    assert [path.name for path in paths] == ["guide.png", "guide.svg"]
    assert paths[0].read_bytes().startswith(b"\x89PNG")
    ElementTree.parse(paths[1])
    text = paths[1].read_text(encoding="utf-8")  # glyphs are drawn as paths, each text named in a comment
    assert all(words in text for words in ("300M non-embedding", "3B non-embedding", "trust: low", "recommended "))


def test_regret_and_trust_name_one_number() -> None:
    """Trust is judged by the shape to build, not by the depth of least expected loss beside it."""
    (row,) = answer([8e5]).budgets
    assert row.optimum.trust.level == "low"
    expected = row.risk.expected.less_compute
    assert f"wastes {expected:.1f} % of compute at equal size in expectation" in row.optimum.trust.reasons[0]
