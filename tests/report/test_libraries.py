"""Libraries that a command imports: lighter, and whole for who imports them by name later."""

import subprocess
import sys

COMMAND = """
import sys
from dwsweep.report import libraries
libraries.scipy()
libraries.matplotlib()
heavy = {"numpy.f2py", "numpy.testing", "scipy.optimize", "mpl_toolkits.mplot3d"}
assert heavy.isdisjoint(sys.modules), heavy & set(sys.modules)

import numpy.f2py
import numpy.testing
from matplotlib.figure import Figure
from scipy.linalg import cholesky
from scipy.special import ndtr
import mpl_toolkits.mplot3d
assert numpy.f2py.__doc__ and numpy.testing.assert_allclose
assert cholesky([[4.0]])[0, 0] == 2.0 and ndtr(0.0) == 0.5
made = Figure()
axes = made.add_subplot()
axes.plot([1, 2], [1, 2])[0].set(linewidth=3.0, color="C1")
made.savefig(sys.stdout.buffer, format="svg")
"""

WHOLE = """
import scipy.special, matplotlib.figure
from dwsweep.report import libraries
libraries.scipy()
libraries.matplotlib()
assert "Notes" in scipy.special.ndtr.__doc__
assert "Set multiple properties" in matplotlib.lines.Line2D.set.__doc__
"""


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_a_command_imports_less_and_every_part_can_be_imported_later():
    assert run(COMMAND).rstrip().endswith("</svg>")


def test_libraries_that_are_imported_already_stay_as_they_are():
    run(WHOLE)
