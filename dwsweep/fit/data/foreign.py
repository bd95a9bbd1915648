"""Foreign tables, which lack a shape or a loss: a chart's export, a file of a fit; shapes in the names of runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from dwsweep.records.columns import ALIASES

RUNS = "give the results.csv of its runs, or the sweep directory"
OTHER_FILES = {
    ("mean", "se", "n", "excluded"): f"cells.csv of a fit, whose means are no runs; {RUNS}",
    ("shallow", "deep"): f"a table of pairs of depths, which a fit wrote; {RUNS}",
    ("trained_depth", "depth_int", "width_int"): f"guideline.csv of a fit; {RUNS}",
    ("best_depth",): f"a table of best depths, which a fit wrote; {RUNS}",
    ("run_id", "action", "pack_id"): "plan.csv of a sweep, whose runs have no losses yet; results.csv has them once "
    "runs are done",
}
"""Columns of files that hold no runs, and the file to give instead."""
NO_LOSS = {
    frozenset({"ppl", "perplexity"}): "a perplexity, the exponential of a loss: give its natural logarithm, in nats",
    frozenset({"acc", "accuracy", "score"}): "no cross-entropy: give the held-out loss, in nats or bits",
}
"""Words in names of columns other than losses, and the column to give instead."""
EXPORTS = "export the table of runs in place of the chart (W&B: Runs, Export, CSV), with depth, width and loss"
MOST_LAYERS = 2000
SHORT = {
    "depth": ("depth", "layer", "nlayer", "numl", "nl", "d"),
    "width": ("width", "hidden", "dmodel", "nembd", "embd", "emb", "dx", "h", "w"),
}
WORDS = {ours: sorted((*ALIASES[ours], *short), key=lambda word: -len(word)) for ours, short in SHORT.items()}
"""Words beside a number in the name of a run, the surer first: L12-d768, numl6, n_layer=12; 12L, 768d."""
BEFORE, BEHIND = r"(?i)(?<![a-z])WORD([0-9]+)(?![0-9.])", r"(?i)(?<![a-z0-9.])([0-9]+)WORD(?![a-z])"
PAIRS = (r"(?<![0-9.])([0-9]+) ?[x×] ?([0-9]+)(?![0-9.])", r"^[^0-9]*([0-9]+)[^0-9]+([0-9]+)[^0-9]*$")
"""Forms of two numbers without words, depth and width in either order: 12x768, gpt-12-768."""
SEED = r"(?i)(?<![a-z])seed[=_:-]?([0-9]+)"


def why_no_table(names: Sequence[str]) -> str:
    """Reason why a table has no runs, and the table to give instead; empty for any other table."""
    given = {name.lower() for name in names}
    curves = [name for name in names if " - " in name]
    ends = [name for name in curves if name.endswith(("__MIN", "__MAX"))]
    if ends or (curves and len(curves) >= len(names) - 1):
        return f"a chart of W&B, one column a run ({(ends or curves)[0]!r}), without depth and width; {EXPORTS}"
    if given <= {"wall time", "step", "value", "loss", "wall_time"} and "step" in given:
        return f"one curve over steps ({', '.join(names)}), without depth and width; must have one row per run"
    return next((why for held, why in OTHER_FILES.items() if given.issuperset(held)), "")


def why_no_loss_column(names: Sequence[str]) -> str:
    """Reason why none of the columns ``names`` is a loss, if one resembles a loss; else empty."""
    for words, why in NO_LOSS.items():
        for name in names:
            if words & set(re.split(r"[^a-z]+", name.lower())):
                return f"{name!r} is {why}"
    return ""


def shapes_in_names(columns: Mapping[str, Sequence[Any]]) -> tuple[dict[str, str], bool]:
    """(``{ours: COLUMN~PATTERN}`` for depth, width and where it stands there the seed, True if no other reading of the
    names is possible): of the column of names of which all texts hold a depth and a larger width; empty without one."""
    readings: list[dict[str, str]] = []
    for name, values in columns.items():
        if not values or not all(isinstance(value, str) for value in values):
            continue
        found = _readings(values)
        if found and _read(SEED, values) and "seed" not in columns:
            found = [{**one, "seed": SEED} for one in found]
        readings += [{ours: f"{name}~{pattern}" for ours, pattern in one.items()} for one in found]
    return (readings[0] if readings else {}), len(readings) == 1


def _readings(texts: Sequence[str]) -> list[dict[str, str]]:
    """Patterns of depth and width that read different numbers, the surer first."""
    found: dict[tuple[tuple[int, ...], ...], dict[str, str]] = {}
    of = {ours: _by_word(words, texts) for ours, words in WORDS.items()}
    pairs = [(depth, width) for depth in of["depth"].items() for width in of["width"].items()]
    for form in PAIRS if not pairs else ():
        own = [_one_group(form, place) for place in (0, 1)]
        read = [_read(pattern, texts) for pattern in own]
        for first, second in ((0, 1), (1, 0)) if all(read) else ():
            pairs.append(((own[first], read[first]), (own[second], read[second])))
    for (one, depths), (other, widths) in pairs:
        in_range = min(depths) >= 1 and max(depths) <= MOST_LAYERS
        if in_range and all(d < w for d, w in zip(depths, widths, strict=True)):
            found.setdefault((depths, widths), {"depth": one, "width": other})
    return list(found.values())


def _by_word(words: Sequence[str], texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Pattern → the number in each text, for each word that stands beside one in all texts."""
    for form in (BEFORE, BEHIND):
        found: dict[str, tuple[int, ...]] = {}
        for word in words:
            joined = "[=:]?" if len(word) == 1 else "[=:_-]?"  # in 6L_264d the letter belongs to the 6
            pattern = form.replace("WORD", word + joined if form is BEFORE else joined + word)
            if (read := _read(pattern, texts)) and read not in found.values():
                found[_shortest(pattern, texts, read)] = read
        if found:
            return found
    return {}


def _shortest(form: str, texts: Sequence[str], read: tuple[int, ...]) -> str:
    """Pattern in the letters of the first text, if it reads the same numbers as ``form``."""
    found = re.search(form, texts[0])
    literal = re.escape(found[0]).replace(found[1], r"(\d+)", 1) if found else form
    return literal if _read(literal, texts) == read else form


def _one_group(form: str, place: int) -> str:
    """``form`` with the group at ``place`` alone."""
    parts = form.split("([0-9]+)")
    return parts[0] + "".join(("([0-9]+)" if k == place else "[0-9]+") + parts[k + 1] for k in (0, 1))


def _read(pattern: str, texts: Sequence[str]) -> tuple[int, ...]:
    """The number in each text; empty if one has none."""
    seen = [re.search(pattern, text) for text in texts]
    return tuple(int(one[1]) for one in seen if one) if all(seen) else ()
