"""The package in a notebook: its functions, what they show, and errors that speak of arguments."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import report_sweeps

import dwsweep
from dwsweep.guide import Options


def test_every_name_is_there_and_none_imports_more_than_it_needs() -> None:
    assert all(getattr(dwsweep, name) is not None for name in dwsweep.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        _ = dwsweep.nothing
    code = (
        "import sys, dwsweep; light = set(sys.modules); dwsweep.guide(3e9); "
        "print(sorted({'numpy', 'jax'} & light), sorted({'jax', 'matplotlib'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split("\n")[0] == "[] []"


def test_guide_answers_as_the_command_does() -> None:
    found = dwsweep.guide(3e9, kv_heads=8, mlp="gated")
    assert found.to_dict() == dwsweep.guide.answer([3e9], options=Options(kv_heads=8, mlp="gated")).to_dict()
    (row,) = found.budgets
    assert row.recommended is not None and f"Build {row.recommended.label}" in dwsweep.summary(found)
    assert len(dwsweep.guide([1e9, 3e9]).budgets) == 2
    assert [v.depth for v in dwsweep.guide(shapes="96x12288").verdicts] == [96]
    assert len(dwsweep.guide(rules="width = 64 * depth").rules) == 1


def test_a_figure_is_made_by_its_name_and_can_be_drawn_on(tmp_path: Path) -> None:
    fit, answer = report_sweeps.fit("one_pair"), dwsweep.guide(3e9)
    for found, name in ((fit, None), (fit, "differences"), (answer, None), (answer, "guide")):
        made = dwsweep.plot(found, name)
        made.axes[0].set_title("mine")
        made.savefig(tmp_path / "a.png")
    with pytest.raises(dwsweep.InputError, match=r"^figure: 'loss'; allowed: loss_vs_depth, loss_vs_size, differences"):
        dwsweep.plot(fit, "loss")
    with pytest.raises(dwsweep.InputError, match=r"^figure: ''; allowed: none, as nothing here can be drawn"):
        dwsweep.plot(dwsweep.guide(shapes="96x12288"))
    assert "Transitions" in dwsweep.summary(fit)
    assert fit.plot("differences").axes[0].get_title() == dwsweep.plot(fit, "differences").axes[0].get_title()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"params": 3.0}, "params: 3; must be"),
        ({"shapes": "2560x24"}, "shapes: '2560x24'; the depth comes first"),
        ({"rules": "width = import"}, "rules: 'width = import'; "),
        ({"params": 3e9, "kv_heads": 0}, "kv_heads: 0; must be at least 1"),
        ({"params": 3e9, "device": "H1000"}, "device: 'H1000' is not in the table"),
        ({"params": 3e9, "compare": True}, "compare: compares a fit of your own with the published law; allowed"),
        ({"params": 3e9, "fit": "/nowhere"}, "fit: /nowhere; no fit.json there"),
    ],
)
def test_an_error_names_the_argument(arguments: dict, line: str) -> None:
    with pytest.raises(dwsweep.InputError) as error:
        dwsweep.guide(**arguments)
    assert str(error.value).startswith(line)
