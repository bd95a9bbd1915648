"""The list of columns against those who have one of their own."""

from __future__ import annotations

from itertools import chain

from dwsweep.cli.analysis import Axis
from dwsweep.fit.data import roles
from dwsweep.fit.data.shape import BLOCK
from dwsweep.records.columns import ALIASES, AXES, COLUMNS, IN_ANY_CASE, REQUIRED, RESULTS, named, of_type
from dwsweep.report.runs_table import RUN_COLUMNS

NAMES = [column.name for column in COLUMNS]


def test_every_list_names_columns_that_are_known() -> None:
    of_roles, of_page = {*roles.KNOWN} - {BLOCK, *chain(*ALIASES.values())}, {name for name, _ in RUN_COLUMNS.values()}
    assert {*RESULTS, *REQUIRED, *of_roles, *of_page} <= set(NAMES) <= set(roles.KNOWN)


def test_a_column_stands_once_and_an_axis_has_an_option() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert list(AXES) == [axis.value for axis in Axis]
    assert set(AXES) <= set(of_type("count")) and set(ALIASES) <= set(IN_ANY_CASE)
    usual = [alias for aliases in ALIASES.values() for alias in aliases]
    assert len(set(usual)) == len(usual) and not set(usual) & set(IN_ANY_CASE)


def test_a_recipe_is_settled_in_this_order() -> None:
    assert named("recipe")[:3] == ("heads", "head_size", "parametrization")
    assert named("tuning")[:3] == ("learning_rate", "tokens", "steps")
