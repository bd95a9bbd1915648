"""Docstrings of other packages that a command's process leaves out: the packages work as ever."""

import subprocess
import sys

CODE = """
import sys
from dwsweep.cli import docstrings
docstrings.leave_out_scipy()
docstrings.leave_out_matplotlib()
import numpy, scipy.special, scipy.linalg, matplotlib.figure, matplotlib.artist
assert "numpy.f2py.crackfortran" not in sys.modules
assert "docstring" not in matplotlib.artist.kwdoc(matplotlib.artist.Artist)
assert not matplotlib.lines.Line2D.set.__doc__
made = matplotlib.figure.Figure()
(line,) = made.subplots().plot([0, 1])
line.set(color="red", linewidth=3)
assert line.get_linewidth() == 3
try:
    line.set(colour="red")
except AttributeError as error:
    assert "colour" in str(error)
else:
    raise AssertionError("an unknown property was taken")
assert abs(scipy.special.ndtr(0.0) - 0.5) < 1e-15 and scipy.linalg.block_diag(1, 2).shape == (2, 2)
assert callable(numpy.f2py.get_include) and callable(numpy.f2py.crackfortran.crackfortran)
from numpy import f2py
import numpy.f2py.crackfortran
"""


def test_packages_without_docstrings_work_and_late_ones_come_when_asked_for() -> None:
    subprocess.run([sys.executable, "-c", CODE], check=True)


def test_importing_dwsweep_leaves_other_packages_whole() -> None:
    code = "import dwsweep, dwsweep.cli.app, matplotlib.lines; assert 'linewidth' in matplotlib.lines.Line2D.set.__doc__"
    subprocess.run([sys.executable, "-c", code], check=True)
