"""The figure of `guide`: drawn from an answer, a panel a budget, nothing without budgets."""

from __future__ import annotations

from xml.etree import ElementTree

from dwsweep.guide import answer
from dwsweep.report.figures import laws


def test_one_panel_a_budget(tmp_path) -> None:
    paths = laws.draw_guide(answer([3e8, 3e9], law="levine2020"), tmp_path)
    assert [path.name for path in paths] == ["guide.png", "guide.svg"]
    assert paths[0].read_bytes().startswith(b"\x89PNG")
    ElementTree.parse(paths[1])
    text = paths[1].read_text(encoding="utf-8")  # glyphs are drawn as paths, each text named in a comment
    assert "300M non-embedding parameters" in text
    assert "3B non-embedding parameters" in text
    assert "equal FLOPs" in text
    # what a reader needs to build a shape and to judge a number: widths, scale, what is assumed, how far it projects
    for words in (
        "width d_x of the shapes",
        "0.1 % of the loss",
        "rate assumed",
        "5× outside the data",
        "trust: low",
        "ASSUMED curvature",
        "usual 32 × 2816",
        "recommended ",
    ):
        assert words in text


def test_a_row_of_panels_per_rule(tmp_path) -> None:
    paths = laws.draw_guide(answer(rules=["nanochat", "gpt3"]), tmp_path)
    assert [path.name for path in paths] == ["rules.png", "rules.svg"]
    text = paths[1].read_text(encoding="utf-8")
    for words in ("nanochat: width = 64 * depth", "GPT-3", "the rule", "shaded: within 0.5 % of the loss"):
        assert words in text


def test_a_verdict_alone_draws_nothing(tmp_path) -> None:
    assert laws.draw_guide(answer([], ["96x12288"]), tmp_path) == []
    assert not list(tmp_path.iterdir())
