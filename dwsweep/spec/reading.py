"""Reading of a spec: the file, overrides of the command line, the validated spec."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any

from dwsweep import paths
from dwsweep.errors import InputError
from dwsweep.spec import builtin
from dwsweep.spec.arms import with_arms_written_out
from dwsweep.spec.bounded_yaml import MAX_BYTES, load_yaml
from dwsweep.spec.sections import Spec
from dwsweep.spec.validation import _known_keys, validated, with_keys

SPEC_FILE = "spec.yaml"  # name of the spec in a sweep directory


def load_spec(path: str | PathLike[str], overrides: Sequence[str] = ()) -> Spec:
    """Read and validate a spec file, or a built-in spec by its name; ``overrides`` are ``dotted.key=value`` with YAML
    values.

    Raises:
        InputError: the file is missing or no YAML mapping, or keys or values are wrong; all of them at once.
    """
    try:
        raw = _read(path)
        text = raw.decode()
    except FileNotFoundError:
        known = ", ".join(sorted(builtin.files()))
        raise InputError(
            f"SPEC: {path} does not exist; give the path of a sweep spec (YAML), or one of {known}"
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(f"SPEC: {path} cannot be read: {error}") from None
    if len(raw) > MAX_BYTES:
        raise InputError(f"SPEC: {path} is larger than {MAX_BYTES:,} bytes; give a sweep spec (YAML)")
    content, keys = load_yaml(text, f"SPEC: {path}"), ", ".join(_known_keys())
    if content is None:
        raise InputError(f"SPEC: {path} is empty; must be a mapping with the keys {keys}")
    if not isinstance(content, dict):
        raise InputError(f"SPEC: {path} holds {type(content).__name__}; must be a mapping with the keys {keys}")
    return parse_spec(content, overrides)


def _read(path: str | PathLike[str]) -> bytes:
    """First bytes of a file, of the ``spec.yaml`` in a folder, or else of the built-in spec of that name.

    Raises:
        OSError: none of them exists, or the file cannot be read.
    """
    file = paths.as_path(path)
    if is_folder := file.is_dir():
        file = file / SPEC_FILE
    if file.name == SPEC_FILE and not paths.is_remote(file) and file.exists():
        paths.check_file(file)  # a sweep's file; another name may be a pipe of the shell
    known = builtin.files().get(str(path))
    try:
        stream = file.open("rb")
    except FileNotFoundError:
        if known is None and is_folder:
            raise IsADirectoryError(f"it is a folder without a {SPEC_FILE}") from None
        if known is None:
            raise
        stream = known.open("rb")
    with stream:
        return stream.read(MAX_BYTES + 1)


def parse_spec(content: dict[str, Any], overrides: Sequence[str] = ()) -> Spec:
    """Validate a mapping with overrides, ``dotted.key=value``, applied in their order: the later one wins.

    Raises:
        InputError: one line for each wrong key or value.
    """
    values = [_pair(override) for override in overrides]
    try:
        changed = with_keys(content, values)
    except InputError as error:
        raise InputError(f"--set {error}") from None
    return validated(with_arms_written_out(changed))


def _pair(override: str) -> tuple[str, Any]:
    """Key and value of an override."""
    key, separator, value = override.partition("=")
    if not separator or not all(part.strip() for part in key.split(".")):
        raise InputError(f"--set: {override[:80]!r}; must be KEY=VALUE with a dotted key, such as train.steps=50")
    return key.strip(), load_yaml(value, f"--set {key}: {value[:40]!r}")
