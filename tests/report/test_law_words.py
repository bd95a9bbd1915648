"""The lines of a fit's width law: two tests of one form, each named beside its verdict."""

from __future__ import annotations

from dataclasses import replace

import pytest
from report_sweeps import fit

from dwsweep.report import fit_report
from dwsweep.terminal import plain_text


@pytest.mark.parametrize("rejected", [False, True])
def test_a_form_that_two_tests_judge_differently_has_both_verdicts_in_its_line(rejected: bool) -> None:
    result = fit("law")
    assert result.surface is not None and len(result.rivals) > 1
    joint = {form.form for form in result.surface.forms}
    name = next(row.form for row in result.rivals if not row.winner and row.form in joint)
    kept = [replace(row, rejected=rejected and row.form == name) for row in result.rivals]
    forms = [replace(form, rejected=form.form == name) for form in result.surface.forms]
    changed = replace(result, rivals=kept, surface=replace(result.surface, forms=forms))
    lines = [line for line in plain_text(fit_report.render(changed)).splitlines() if line.strip().startswith(name)]
    word = "rejected by the transitions and" if rejected else "not rejected by the transitions, rejected"
    assert any(f"{word} by the losses of all depths" in " ".join(line.split()) for line in lines), lines
