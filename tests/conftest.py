"""Fixtures and settings of all tests."""

import atexit
import gc
import hashlib
import io
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import pytest
from cli_tools import Command, in_this_process
from coarse import coarse, whole

# A shell starts a background job with SIGINT ignored, and children inherit that: the tests that interrupt a `dwsweep`
# of their own would wait for it in vain. A handler of this process is reset to the default in its children.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Looking for cycles takes a quarter of collection and a tenth of tracing for JAX; `dwsweep run` looks as rarely.
gc.set_threshold(100_000)

# The matrices of a fit are small: BLAS threads of several workers on two cores only wait for each other, up to six
# times as long as one thread computes. `dwsweep fit` limits them itself; tests call what is inside it.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Most tests of the trainer compile the same few programs; JAX reads this when it is first imported.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    compiled = tempfile.mkdtemp(prefix="dwsweep-compiled-")
    atexit.register(shutil.rmtree, compiled, ignore_errors=True)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = compiled
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "0"


# XLA's optimizers take six times as long to compile a program, and hardly any test trains for longer than that. Nor do
# programs that small gain by being compiled in parts beside each other.
# `XLA_FLAGS= make test` compiles as a sweep does, and so do the slow tier and the tests that are marked `optimized`.
QUICK = "--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1"
if tuple(map(int, version("jaxlib").split(".")[:2])) < (0, 11):  # later ones abort at a flag that they have not
    QUICK += " --xla_cpu_use_fusion_emitters=false"
os.environ.setdefault("XLA_FLAGS", QUICK)
DEVICES = "--xla_force_host_platform_device_count"


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test marked ``optimized`` or ``devices`` runs in a process of its own, where programs are compiled as a sweep's
    are, or the CPU has so many devices."""
    optimized, devices = map(pyfuncitem.get_closest_marker, ("optimized", "devices"))
    flags = "" if optimized else os.environ["XLA_FLAGS"]
    if devices and DEVICES not in os.environ["XLA_FLAGS"]:
        flags += f" {DEVICES}={devices.args[0]}"
    elif not optimized or os.environ["XLA_FLAGS"] != QUICK:
        return None
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "", pyfuncitem.nodeid]
    done = subprocess.run(
        command, cwd=pyfuncitem.config.rootpath, env={**os.environ, "XLA_FLAGS": flags}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr[-2_000:]
    return True


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """The workers of a run must collect the same names: packed bytes hold the second at which they were packed."""
    return argname if isinstance(val, bytes) else None


# Each file is one worker's, so that what its tests share is made once: `--dist loadfile` deals them out in this order,
# by which no long one begins while the other workers have nothing left to do. These take eight seconds or more.
LONGEST = (
    *("design/test_errors", "fit/test_heap", "train/test_loop", "train/test_step", "train/test_mesh"),
    *("train/test_bucket", "sweep/test_claim", "sweep/test_runner", "fit/test_analysis", "fit/test_meaning"),
    *("report/test_page", "sweep/test_kill", "fit/test_best_depth", "model/test_transformer"),
    *("report/test_figures", "report/test_agreement", "guide/test_evidence_answers", "fit/test_truths"),
    *("sweep/test_inventory", "fit/test_budgets", "fit/test_posterior", "cli/test_notebook"),
    *("cli/test_first_steps", "cli/test_commands", "sweep/test_remote", "guide/test_law", "guide/test_inside"),
    *("report/test_page_browser", "train/test_optimizer", "train/test_fit", "fit/test_compare"),
    "train/test_bench",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {f"tests/{name}.py": k for k, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.nodeid.partition("::")[0], len(order)))


def pytest_collection_finish(session: pytest.Session) -> None:
    """The trainer collects garbage after each pack: a quarter of a second to go through all that was imported, a tenth
    of the time of its tests. What stands now stays."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def coarse_grids(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fits of the quick tier compute on few points and draws; the slow tier, and commands in processes of their own, on
    all."""
    with pytest.MonkeyPatch.context() as patch:
        if "not slow" in request.config.option.markexpr:
            coarse(patch)
        yield


@pytest.fixture
def whole_grids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fits on all points and draws in the quick tier too."""
    whole(monkeypatch)


MADE: dict[bytes, Any] = {}


def once(compute: Callable[..., Any]) -> Callable[..., Any]:
    """``compute`` for arguments that no test of this process had before."""

    def again(*arguments: Any, **options: Any) -> Any:
        content = io.BytesIO()
        pickler = pickle.Pickler(content)
        pickler.fast = True  # else equal parts that are one object are written otherwise than two
        pickler.dump((compute.__name__, arguments, options))
        key = hashlib.sha256(content.getvalue()).digest()
        if key not in MADE:
            made = compute(*arguments, **options)
            MADE[key] = list(made) if isinstance(made, Iterator) else made
        return MADE[key]

    return again


@pytest.fixture(scope="module")
def surfaces_again() -> Iterator[None]:
    """The posterior of equal losses is computed once in a process, which is nine tenths of the time of
    a small fit: for tests of what a table means and of what is said of a fit, none of how its posterior comes about."""
    from dwsweep.fit.statistics import ask

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ask, "surface_of", once(ask.surface_of))
        yield


@pytest.fixture(scope="module")
def at_equal_size_alone() -> Iterator[None]:
    """Heaps without their answers at equal cost, which take as long as all others, and are ``test_equal_what``'s."""
    from dwsweep.fit import heap

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(heap, "equal_what", lambda *_: {})
        yield


@pytest.fixture(scope="module")
def short_guideline() -> Iterator[None]:
    """Three of a guideline's nine sizes: each takes as long as a question to ``guide``."""
    from dwsweep import published_law
    from dwsweep.fit.answers import guideline

    targets = [row for row in published_law.targets() if row[0] in ("125M", "350M", "13B")]
    with pytest.MonkeyPatch.context() as patch:
        few = SimpleNamespace(**{**vars(published_law), "targets": lambda: targets})
        patch.setattr(guideline, "published_law", few)
        yield


@pytest.fixture
def without_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    """For commands and pages whose figures nobody looks at: drawing takes most of their time."""
    from dwsweep.report.figures import style

    monkeypatch.setattr(style, "render", lambda *_: b"<svg>drawn</svg>")


@pytest.fixture
def dwsweep(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command line in this process, on a terminal of 100 columns."""
    monkeypatch.setenv("COLUMNS", "100")
    return in_this_process(monkeypatch, capsys)


@pytest.fixture(autouse=True)
def environment_as_it_was():
    """Environment restored after each test, since a command sets variables for JAX and its workers."""
    before = dict(os.environ)
    yield
    if dict(os.environ) != before:
        os.environ.clear()
        os.environ.update(before)
