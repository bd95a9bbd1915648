"""What ``train.seconds`` promised each run beside what it took: device-seconds, shape by shape, of the runs that are
done."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dwsweep.records.run_files import RunConfig
from dwsweep.sweep.sweep_directory import SweepStore

EQUAL = 1.1  # factor between the shapes that still counts as equal time


@dataclass(frozen=True)
class KeptPromise:
    """The finished runs of one shape and length; seconds are device-seconds of one run, its share of its pack."""

    label: str  # of the shape
    depth: int
    width: int
    steps: int
    time_basis: str  # of the rate that they were promised by: measured, compiled or assumed
    device: str  # that it is the rate of
    promised: float
    measured: tuple[float, ...]  # of each run
    devices: tuple[str, ...]  # that they were trained on

    @property
    def ratios(self) -> tuple[float, ...]:
        """Measured over promised."""
        return tuple(seconds / self.promised for seconds in self.measured)

    @property
    def ratio(self) -> float:
        """Their mean."""
        return sum(self.ratios) / len(self.ratios)

    @property
    def off(self) -> float:
        """How far the mean is from 1, either way alike."""
        return max(self.ratio, 1 / self.ratio)


def kept_promises(store: SweepStore, run_ids: Iterable[str]) -> tuple[KeptPromise, ...]:
    """Of these runs, in the order of depth, width and steps; none where nothing was promised or nothing is done."""
    groups: dict[tuple[int, int, int, str], list[tuple[RunConfig, float, str]]] = defaultdict(list)
    for run_id in run_ids:
        config = store.config(run_id)
        if config is None:
            continue
        if config.promise is None:  # all runs of a plan have one, or none
            break
        result = store.result(run_id)
        if result is not None and result.device_seconds:
            shape = config.shape
            key = (shape.depth, shape.width, config.steps, shape.label)
            groups[key].append((config, result.device_seconds, result.device_kind or "?"))
    return tuple(_kept(found) for _, found in sorted(groups.items()))


def _kept(found: Sequence[tuple[RunConfig, float, str]]) -> KeptPromise:
    config = found[0][0]
    assert config.promise is not None
    rate = config.promise.rate
    return KeptPromise(
        label=config.shape.label,
        depth=config.shape.depth,
        width=config.shape.width,
        steps=config.steps,
        time_basis=rate.time_basis,
        device=rate.device,
        promised=config.promise.seconds,
        measured=tuple(seconds for _, seconds, _ in found),
        devices=tuple(dict.fromkeys(device for *_, device in found)),
    )


def sentence(kept: Sequence[KeptPromise]) -> str:
    """How well the promises were kept, the shape that missed its own by most named; empty where there are none."""
    if not kept:
        return ""
    runs = sum(len(one.measured) for one in kept)
    ratios = [one.ratio for one in kept]
    worst = max(kept, key=lambda one: one.off)
    span = f"{min(ratios):.2f} to {max(ratios):.2f}" if len(kept) > 1 else f"{ratios[0]:.2f}"
    bases = " and ".join(sorted({f"{one.time_basis} for {one.device}" for one in kept}))
    return (
        f"{runs} finished run{'s' * (runs > 1)} of {len(kept)} shape{'s' * (len(kept) > 1)} took {span} times the "
        f"device-seconds that train.seconds promised (rates {bases}); farthest off: {worst.label}, "
        f"{sum(worst.measured) / len(worst.measured):.3g} s for {worst.promised:.3g} s"
        + ("; the shapes did not get equal time" if max(ratios) > EQUAL * min(ratios) else "")
    )
