"""Visible words of inline templates of Wikipedia, such as ``{{convert|31|m|ft}}``: texts of arguments → text.

A number, a date or a name that a template prints is part of its sentence. Not among them: what depends on the day of
reading (an age), a conversion to another unit, icons and pronunciations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

VERSION = 2  # raise it if the same page gives another text
"""Version of the text made of a page; part of the name of a store, so that the text of an older one is not reused."""

Template = Callable[[Sequence[str], Mapping[str, str]], str]
"""Positional arguments without blanks around them, and named ones → visible text."""

_MONTHS = [
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
]
_RANGES = {
    **{"-": "–", "–": "–", "to": " to ", "to(-)": " to ", "and": " and ", "and(-)": " and ", "or": " or "},
    **{"x": " × ", "×": " × ", "by": " by ", "+/-": " ± ", "±": " ± ", "to about": " to about "},
}
_UNITS = {
    **{"sqmi": "sq mi", "sqft": "sq ft", "sqkm": "km²", "km2": "km²", "m2": "m²", "cm2": "cm²", "mm2": "mm²"},
    **{"m3": "m³", "km3": "km³", "cm3": "cm³", "cuft": "cu ft", "cumi": "cu mi", "C": "°C", "F": "°F"},
    **{"C-change": "°C", "F-change": "°F"},
}
_POWERS = {"3": "thousand ", "6": "million ", "9": "billion ", "12": "trillion "}
_CURRENCIES = {"us$": "US$", "usd": "US$", "gbp": "£", "£": "£", "eur": "€", "€": "€", "inr": "₹", "jpy": "¥", "¥": "¥"}
_SHIPS = {
    *("hms", "uss", "hmas", "hmcs", "hmnzs", "rms", "ss", "sms", "mv", "ms", "usns", "uscgc", "usat", "css", "ins"),
    *("rfa", "hdms", "hnoms", "hswms", "orp"),
}
_NUMBER = re.compile(r"[-+−]?(?:\d[\d,]*(?:\.\d+)?|\.\d+)")


def _first(args: Sequence[str], named: Mapping[str, str]) -> str:
    return args[0] if args else ""


def _second(args: Sequence[str], named: Mapping[str, str]) -> str:
    return args[1] if len(args) > 1 else ""


def _joined(args: Sequence[str], named: Mapping[str, str]) -> str:
    return "".join(args)


def _quotation(args: Sequence[str], named: Mapping[str, str]) -> str:
    return f"\n{named.get('text') or named.get('quote') or _first(args, named)}\n"


def _language(args: Sequence[str], named: Mapping[str, str]) -> str:
    return named.get("text") or _second(args, named)


def _converted(args: Sequence[str], named: Mapping[str, str]) -> str:
    """Quantity as given: ``5|to|10|km|mi`` is 5 to 10 km, ``3|ft|6|in|m`` is 3 ft 6 in."""
    out, at = "", 0
    while at < len(args) and _is_number(args[at]):
        out, at = out + with_commas(args[at]), at + 1
        if at < len(args) and args[at] in _RANGES:
            out, at = out + _RANGES[args[at]], at + 1
            continue
        if at < len(args) and not _is_number(args[at]):
            out, at = f"{out} {_unit(args[at])}", at + 1
            if at + 1 < len(args) and _is_number(args[at]) and not _is_number(args[at + 1]):
                out += " "
                continue
        break
    return out or _first(args, named)


def _is_number(text: str) -> bool:
    """Test of a number, a fraction (1/2, 3+1/2) or a text that begins with one."""
    return _NUMBER.match(text) is not None


def _unit(code: str) -> str:
    power = re.fullmatch(r"e(3|6|9|12)(.+)", code)
    return f"{_POWERS[power[1]]}{_unit(power[2])}" if power else _UNITS.get(code, code)


def _value(args: Sequence[str], named: Mapping[str, str]) -> str:
    """``1.2|0.1|e=3|u=m`` is 1.2 ± 0.1 × 10^3 m."""
    text = _first(args, named)
    if len(args) > 1:
        text += args[1] if args[1].startswith("(") else f" ± {args[1]}"
    text += f" × 10^{named['e']}" if named.get("e") else ""
    unit = named.get("u") or named.get("ul")
    return f"{text} {unit}" if unit else text


def _fraction(args: Sequence[str], named: Mapping[str, str]) -> str:
    """``3`` is 1/3, ``1|2`` is 1/2, ``2|1|2`` is 2 1/2."""
    *whole, above, below = ["1", *args] if len(args) == 1 else args or ["", ""]
    return " ".join([*whole, f"{above}/{below}"]) if below else ""


def with_commas(text: str) -> str:
    """Number with a comma between groups of three digits; any other text as it is."""
    found = re.fullmatch(r"([-+−]?)([0-9]{4,})(\.[0-9]+)?", text.strip())
    return f"{found[1]}{int(found[2]):,}{found[3] or ''}" if found else text.strip()


def _number(args: Sequence[str], named: Mapping[str, str]) -> str:
    return with_commas(_first(args, named))


def _ordinal(args: Sequence[str], named: Mapping[str, str]) -> str:
    number = _first(args, named)
    ending = {"1": "st", "2": "nd", "3": "rd"}.get(number[-1:], "th")
    return f"{number}{'th' if re.search(r'1[0-9]$', number) else ending}"


def _date(args: Sequence[str], named: Mapping[str, str]) -> str:
    """Year, month and day as numbers: May 3, 2014, or 3 May 2014 with ``df=yes``; any other text as it is."""
    year, month, day = (*args[:3], "", "", "")[:3]
    if not re.fullmatch(r"\d{1,4}", year):
        return year
    if not (month.isdecimal() and 1 <= int(month) <= 12):
        return year
    name = _MONTHS[int(month) - 1]
    if not day.isdecimal():
        return f"{name} {year}"
    first = named.get("df", "").lower() in ("y", "yes", "1") or named.get("mf", "y").lower() in ("n", "no")
    return f"{int(day)} {name} {year}" if first else f"{name} {int(day)}, {year}"


def _as_of(args: Sequence[str], named: Mapping[str, str]) -> str:
    """``2014|5`` is As of May 2014; ``lc=y``: as of; ``since=y``: Since; ``alt=``: that text."""
    if named.get("alt"):
        return named["alt"]
    word = "Since" if named.get("since") else "As of"
    date = _date(args, {"df": "" if named.get("df", "").upper() == "US" else "y"})
    return f"{word.lower() if named.get('lc') else word} {date}".strip()


def _before(word: str, between: str = "–") -> Template:
    def text(args: Sequence[str], named: Mapping[str, str]) -> str:
        return " ".join([word, between.join(arg for arg in args[:2] if arg)]).strip()

    return text


def _nihongo(args: Sequence[str], named: Mapping[str, str]) -> str:
    """``English|Japanese|Rōmaji|more`` is English (Japanese, Rōmaji, more)."""
    inside = ", ".join(arg for arg in args[1:4] if arg)
    return f"{_first(args, named)} ({inside})".strip() if inside else _first(args, named)


def _ship(prefix: str) -> Template:
    """``Ajax|22`` is HMS Ajax (22); a third argument leaves the number out, and 2 the prefix too."""

    def text(args: Sequence[str], named: Mapping[str, str]) -> str:
        name, number, form = (*args[:3], "", "", "")[:3]
        return f"{prefix} {name}" + (f" ({number})" if number and not form else "") if form != "2" else name

    return text


def _any_ship(args: Sequence[str], named: Mapping[str, str]) -> str:
    return _ship(_first(args, named))(args[1:], named).strip()


def _ship_class(args: Sequence[str], named: Mapping[str, str]) -> str:
    return f"{_first(args, named)}-class {_second(args, named)}".strip()


def _accidental(args: Sequence[str], named: Mapping[str, str]) -> str:
    signs = {"flat": "♭", "b": "♭", "sharp": "♯", "#": "♯", "natural": "♮"}
    return signs.get(_first(args, named), "")


def _symbol(text: str) -> Template:
    return lambda args, named: text


def _currency(sign: str) -> Template:
    return lambda args, named: f"{sign}{_first(args, named)}"


def _all(template: Template, *names: str) -> dict[str, Template]:
    return dict.fromkeys(names, template)


TEMPLATES: dict[str, Template] = {
    **_all(_first, "nowrap", "nobr", "small", "smaller", "big", "larger", "resize", "smallcaps", "sc", "em", "strong"),
    **_all(_first, "abbr", "tooltip", "mvar", "math", "var", "script", "sic", "not a typo", "notatypo", "ill", "angbr"),
    **_all(_first, "sub", "sup", "vanchor", "visible anchor", "noitalic", "bold", "nihongo2", "flag", "flagcountry"),
    **_all(_first, "flagu", "birth-date", "death-date", "oldstyledate", "birth year and age", "birth-date and age"),
    **_all(_first, "death-date and age", "death year and age", "railgauge", "track gauge"),
    **_all(
        _quotation, "quote", "blockquote", "quotation", "cquote", "bquote", "poemquote", "quoteblock", "block quote"
    ),
    **_all(_language, "lang", "transl", "transliteration", "langx", "script/hebrew", "rtl-lang", "transl."),
    **_all(_converted, "convert", "cvt"),
    **_all(_value, "val"),
    **_all(_fraction, "frac", "fraction", "sfrac", "fract"),
    **_all(_number, "formatnum", "number", "nts", "format price"),
    **_all(_joined, "gaps", "chem", "chem2", "chem/link"),
    **_all(_ordinal, "ordinal", "ord"),
    **_all(_date, "birth date", "birth date and age", "death date", "death date and age", "start date", "end date"),
    **_all(_date, "start date and age", "end date and age", "bda", "dob", "dda", "film date", "date", "dts"),
    **_all(_as_of, "as of", "asof"),
    **_all(_before("c.", " – c. "), "circa", "c."),
    **_all(_before("fl."), "floruit", "fl."),
    **_all(_before("r."), "reign", "r."),
    **_all(_before("b."), "born-in", "b."),
    **_all(_before("d."), "d."),
    **_all(_nihongo, "nihongo", "nihongo3", "nihongo4", "nihongo krt"),
    **_all(_any_ship, "ship"),
    **{name: _ship(name.upper()) for name in _SHIPS},
    **_all(_ship_class, "sclass", "sclass-", "sclass2", "sclass2-"),
    **_all(_accidental, "music"),
    **{name: _currency(sign) for name, sign in _CURRENCIES.items()},
    "e": lambda args, named: f" × 10^{_first(args, named)}",
    **_all(_symbol(" "), "nbsp", "spaces", "space", "thinsp", "thin space", "hairsp", "sp"),
    **_all(_symbol("–"), "ndash", "endash", "en dash"),
    **_all(_symbol(" – "), "snd", "spnd", "snds", "spaced ndash", "spaced en dash"),
    **_all(_symbol("—"), "mdash", "emdash", "em dash", "mdashb"),
    **_all(_symbol(" — "), "spaced mdash"),
    **{name: _symbol(name) for name in ("'", "'s", "·", "•", "=", "' \"", "\" '")},
    **{"dot": _symbol("·"), "bullet": _symbol("•"), "!": _symbol("|"), "pi": _symbol("π"), "~": _symbol("~")},
}
"""Template by its name in lower case."""


def template(name: str) -> Template | None:
    """Template of a name in lower case; None: its words are left out."""
    return TEMPLATES.get(name, _first if name.startswith("lang-") else None)
