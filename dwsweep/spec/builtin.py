"""Built-in specs by name: files of the clone's ``sweeps``, or of the folder where pip put them."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

FOLDER = "sweeps"


def find(name: str) -> Path | None:
    """File of a built-in spec; None if no spec has that name."""
    return _files().get(name)


def names() -> list[str]:
    return sorted(_files())


def _files() -> dict[str, Path]:
    clone = Path(__file__).parents[2] / FOLDER
    if clone.is_dir():
        return {path.stem: path for path in clone.glob("*.yaml")}
    try:
        files = metadata.files("dwsweep") or []
    except metadata.PackageNotFoundError:
        return {}
    return {file.stem: Path(str(file.locate())) for file in files if file.match(f"{FOLDER}/*.yaml")}
