"""The figure of `guide`: drawn from an answer, a panel a budget, nothing without budgets."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

from sentences import says

from dwsweep.guide import answer
from dwsweep.guide.answers import Risk
from dwsweep.report import guide_report
from dwsweep.report.figures import laws
from dwsweep.report.markup import html_of


def test_one_panel_a_budget(tmp_path) -> None:
    paths = laws.draw_guide(answer([3e8, 3e9], law="levine2020"), tmp_path)
    assert [path.name for path in paths] == ["guide.png", "guide.svg"]
    assert paths[0].read_bytes().startswith(b"\x89PNG")
    ElementTree.parse(paths[1])
    text = paths[1].read_text(encoding="utf-8")  # glyphs are drawn as paths, each text named in a comment
    for words in (
        "300M non-embedding",
        "3B non-embedding",
        "equal FLOPs",
        "rate assumed",
        "trust: low",
        "recommended ",
    ):
        assert words in text


def test_depths_that_waste_little_are_named_with_what_they_waste() -> None:
    found = answer([3e8])
    (row,) = found.budgets
    assert row.near_best[1].less_compute == 5.0
    endless = {"depth_low": None, "depth_high": None}
    flat = replace(found, budgets=(replace(row, near_best=tuple(replace(one, **endless) for one in row.near_best)),))
    shown = [" ".join(html_of(guide_report.document(one)).split()) for one in (found, flat)]
    assert all(
        "waste at most 5 % of compute at equal size" in one.replace("</b>", "").replace("</strong>", "")
        for one in shown
    )
    assert "next to nothing" not in shown[0]
    assert says(shown[1], "report: all depths data") and "beyond the data to beyond" not in shown[1]


def test_a_verdict_alone_draws_nothing(tmp_path) -> None:
    assert laws.draw_guide(answer([], ["96x12288"]), tmp_path) == []
    assert not list(tmp_path.iterdir())


def test_a_bound_below_the_expected_regret_is_the_share_of_the_draws() -> None:
    """A few draws without bound raise the mean above the 95 % quantile: "at most" alone would contradict it."""
    row = answer([3e8]).budgets[0]
    assert row.risk is not None

    def sentence(risk: Risk) -> str:
        parts = guide_report._risk(replace(row, risks={row.at: risk}))
        return "".join(html_of([part]) for part in parts).replace("\xa0", " ")

    worst = f"at most {row.risk.worst.less_compute:.1f} %"
    assert f"{worst} (95 %)" in sentence(row.risk)
    heavy = replace(row.risk, expected=replace(row.risk.expected, less_compute=32.9))
    assert f"{worst} in 95 % of the draws of the fit" in sentence(heavy)


def test_regret_and_trust_name_one_number() -> None:
    """Trust is judged by the shape to build, not by the depth of least expected loss beside it."""
    (row,) = answer([8e5]).budgets
    assert row.optimum.trust.level == "low"
    expected = row.risks[row.at].expected.less_compute
    assert f"wastes {expected:.1f} % of compute at equal size in expectation" in row.optimum.trust.reasons[0]
