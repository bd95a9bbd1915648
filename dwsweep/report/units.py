"""Numbers as a person reads them, a few characters wide."""

from __future__ import annotations

from dwsweep.text import format_count

count_text = format_count


def bytes_text(value: float) -> str:
    """Decimal units, as disks and data sheets count: ``512 MB``."""
    for power, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= power * 0.9995:
            return f"{value / power:.3g} {unit}"
    return f"{value:.0f} B"


def duration_text(seconds: float) -> str:
    """``45 s``, ``12 min``, ``3.4 h``, ``21 d``."""
    if seconds < 99.5:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    for size, unit, until in ((60, "min", 99.5), (3600, "h", 47.5)):
        if seconds / size < until:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 86400:,.3g} d" if seconds < 86400 * 999 else f"{seconds / 86400:,.0f} d"


def hours_text(hours: float) -> str:
    """``0.28``, ``17.5``, ``15,384``."""
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:.3g}"


def rate_text(value: float) -> str:
    """A learning rate or a factor: ``1.5e-4``, ``0.012``, ``2``."""
    if value and abs(value) < 0.01:
        mantissa, exponent = f"{value:.1e}".split("e")
        return f"{mantissa.removesuffix('.0')}e{int(exponent)}"
    return f"{value:.3g}"
