"""Loggers beside metrics.jsonl: TensorBoard, Weights & Biases and Trackio, off unless ``execution.loggers`` asks."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import importlib.util
import io
import netrc
import os
import re
import threading
import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from dwsweep import paths
from dwsweep.errors import InputError, install
from dwsweep.plan import Pack
from dwsweep.records.metrics import MetricsRow, read_metrics
from dwsweep.records.record import to_dict
from dwsweep.sweep.directory import SweepStore
from dwsweep.text import one_line

if TYPE_CHECKING:
    from tensorboardX import SummaryWriter

_PACKAGES = {"tensorboard": "tensorboardX", "wandb": "wandb", "trackio": "trackio"}


class Logger(Protocol):
    """Destination of the rows of metrics of a pack's runs. A run that is resumed logs some rows a second time."""

    def metrics(self, run_id: str, rows: Sequence[MetricsRow]) -> None:
        """Log rows with ``step`` and numbers."""

    def finished(self, run_id: str, result: Mapping[str, object]) -> None:
        """Log the end of a run; ``result`` holds its figures."""

    def close(self) -> None:
        """Close; everything logged is on disk afterwards."""


LOGIN_SECONDS = 30.0  # time limit for W&B to check a key


def check(names: Sequence[str], say: Callable[[str], None] = lambda line: None) -> None:
    """Refuse loggers that are not installed, or that cannot log in, before anything trains. Without a key W&B keeps
    everything on disk, with a message through ``say``.

    Raises:
        InputError: names the extra to install, or why W&B refuses.
    """
    lines = [
        f"execution.loggers: {name!r}; its package is not installed: {install(name)}"
        for name in names
        if importlib.util.find_spec(_PACKAGES[name]) is None
    ]
    if lines:
        raise InputError(*lines)
    if "wandb" in names and os.environ.get("WANDB_MODE", "online") in ("online", "run", "shared"):
        if _has_key():
            _log_in()
        else:
            os.environ["WANDB_MODE"] = "offline"  # workers inherit it
            say("execution.loggers: wandb; there is no key, so its runs are kept on disk (WANDB_MODE=offline)")


def _has_key() -> bool:
    """True if W&B finds a key: in its variable, or in the netrc file of the user."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = urllib.parse.urlparse(os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai").hostname or ""
    places = [os.environ["NETRC"]] if "NETRC" in os.environ else ["~/.netrc", "~/_netrc"]
    for place in map(os.path.expanduser, places):
        with contextlib.suppress(OSError, netrc.NetrcParseError):
            if netrc.netrc(place).authenticators(host):
                return True
    return False


def _log_in() -> None:
    found: list[str] = []

    def log_in() -> None:
        try:
            import wandb

            wandb.login(verify=True, timeout=int(LOGIN_SECONDS))
            found.append("")
        except BaseException as error:  # the package or a dependency failed; it may even exit
            found.append(" ".join(str(error).split())[:200] or type(error).__name__)

    thread = threading.Thread(target=log_in, daemon=True)
    thread.start()
    thread.join(LOGIN_SECONDS)
    why = found[0] if found else f"no answer within {LOGIN_SECONDS:.0f} s"
    if why:
        raise InputError(
            f"execution.loggers: 'wandb'; cannot log in ({why}); correct the key, or set WANDB_MODE=offline"
        )


def make(
    names: Sequence[str], store: SweepStore, pack: Pack, say: Callable[[str], None] = lambda line: None
) -> list[Logger]:
    """The loggers by name, for the runs of one pack. A failing one is left out from then on, with a message through
    ``say``: training goes on without it."""
    makers: dict[str, Callable[[SweepStore, Pack], Logger]] = {
        **{"tensorboard": TensorBoardLogger, "wandb": WandbLogger, "trackio": TrackioLogger}
    }
    return [TolerantLogger(name, functools.partial(makers[name], store, pack), say) for name in names]


class TolerantLogger:
    """Logger whose failure ends its log, not the run."""

    def __init__(self, name: str, make: Callable[[], Logger], say: Callable[[str], None]) -> None:
        self._name, self._make, self._say = name, make, say
        self._logger: Logger | None = None
        self._failed = False

    def metrics(self, run_id: str, rows: Sequence[MetricsRow]) -> None:
        self._try(lambda logger: logger.metrics(run_id, rows))

    def finished(self, run_id: str, result: Mapping[str, object]) -> None:
        self._try(lambda logger: logger.finished(run_id, result))

    def close(self) -> None:
        self._try(lambda logger: logger.close())

    def _try(self, call: Callable[[Logger], None]) -> None:
        if self._failed:
            return
        try:
            self._logger = self._logger or self._make()
            call(self._logger)
        except Exception as error:
            self._failed = True
            self._say(f"execution.loggers: {self._name} failed and is left out from now on: {one_line(error)}")


class TensorBoardLogger:
    """TensorBoard logger: event files under ``DIR/tensorboard/<run_id>``."""

    def __init__(self, store: SweepStore, pack: Pack) -> None:
        self.root = store.directory / "tensorboard"
        self._writers: dict[str, SummaryWriter] = {}

    def _write(self, run_id: str, group: str, row: Mapping[str, object], step: Any) -> None:
        if run_id not in self._writers:
            from tensorboardX import SummaryWriter

            # files are named by the second and the host: an attempt within a second of the last would overwrite it;
            # purge_step hides rows that an interrupted attempt logged beyond its checkpoint
            suffix = f".{time.time_ns()}.{os.getpid()}"
            self._writers[run_id] = SummaryWriter(str(self.root / run_id), purge_step=step, filename_suffix=suffix)
        for name, value in _scalars(row):
            self._writers[run_id].add_scalar(f"{group}/{name}", value, step)

    def metrics(self, run_id: str, rows: Sequence[MetricsRow]) -> None:
        for row in rows:
            self._write(run_id, "train", row, row["step"])

    def finished(self, run_id: str, result: Mapping[str, object]) -> None:
        self._write(run_id, "result", result, result.get("steps"))
        self._writers.pop(run_id).close()

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()


class TrackerLogger:
    """Logger to a tracker by the interface of W&B, which Trackio speaks too: ``init``, ``log``, ``finish``.

    Each run is one run of the tracker. It is logged from its metrics.jsonl where a killed attempt did not hand over all
    rows, and no step twice.
    """

    def __init__(self, store: SweepStore, pack: Pack) -> None:
        self.store, self.pack = store, pack
        self._runs: dict[str, Any] = {}
        self._next: dict[str, int] = {}  # first step that the tracker does not hold

    def _init(self, run_id: str, **common: Any) -> tuple[Any, int]:
        """(run of the tracker, first step that it does not hold)."""
        raise NotImplementedError

    def _end(self, run: Any, result: Mapping[str, object]) -> None:
        """Log the figures of a finished run."""
        raise NotImplementedError

    def metrics(self, run_id: str, rows: Sequence[MetricsRow]) -> None:
        if run_id not in self._runs:
            config = self.store.config(run_id)
            common = {"project": "dwsweep", "group": self.pack.shape.label, "name": run_id, "resume": "allow"}
            with _quiet():
                found = self._init(run_id, config=to_dict(config) if config else None, **common)
            self._runs[run_id], self._next[run_id] = found
            rows = [*read_metrics(self.store.run_directory(run_id) / "metrics.jsonl").rows, *rows]
        for row in rows:
            if row["step"] >= self._next[run_id]:
                self._runs[run_id].log(dict(_scalars(row)), step=row["step"])
                self._next[run_id] = row["step"] + 1

    def finished(self, run_id: str, result: Mapping[str, object]) -> None:
        self.metrics(run_id, ())
        self._end(self._runs[run_id], result)
        self._finish(self._runs.pop(run_id))

    def close(self) -> None:
        for run in self._runs.values():
            self._finish(run, exit_code=1)  # the run did not reach its end
        self._runs.clear()

    def _finish(self, run: Any, exit_code: int = 0) -> None:
        run.finish(exit_code=exit_code)


class WandbLogger(TrackerLogger):
    """W&B logger, under ``DIR/wandb``; ``WANDB_MODE=offline`` keeps everything on disk."""

    def _init(self, run_id: str, **common: Any) -> tuple[Any, int]:
        import wandb

        run = wandb.init(
            id=re.sub(r"[^A-Za-z0-9_-]", "_", run_id),
            dir=None if paths.is_remote(self.store.directory) else str(self.store.directory),
            reinit="create_new",  # replicas of a pack log side by side
            settings=wandb.Settings(console="off", silent=True),
            **common,
        )
        return run, run.step

    def _end(self, run: Any, result: Mapping[str, object]) -> None:
        run.summary.update(dict(_scalars(result)))  # the held-out loss in place of the last training loss


class TrackioLogger(TrackerLogger):
    """Trackio logger, in ``DIR/trackio`` or by Trackio's settings (TRACKIO_DIR, a Space)."""

    def _init(self, run_id: str, **common: Any) -> tuple[Any, int]:
        if not paths.is_remote(self.store.directory):
            os.environ.setdefault("TRACKIO_DIR", str(paths.as_path(self.store.directory).absolute() / "trackio"))
        import trackio  # reads TRACKIO_DIR

        # own context: `init` would finish the run in the present one, and replicas of a pack log side by side
        quiet = {"embed": False, "auto_log_gpu": False, "auto_log_cpu": False}
        run = contextvars.Context().run(functools.partial(trackio.init, **common, **quiet))
        return run, getattr(run, "_next_step", 0)

    def _end(self, run: Any, result: Mapping[str, object]) -> None:
        run.log({f"result/{name}": value for name, value in _scalars(result)}, step=result.get("steps"))

    def _finish(self, run: Any, exit_code: int = 0) -> None:
        with _quiet():
            run.finish()


def _quiet() -> contextlib.AbstractContextManager[Any]:
    return contextlib.redirect_stdout(io.StringIO())


def _scalars(row: Mapping[str, object]) -> list[tuple[str, float]]:
    return [(k, float(v)) for k, v in row.items() if k != "step" and isinstance(v, int | float)]
