"""Built-in specs by name: files of the clone's ``sweeps``, or of the folder where pip put them."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

FOLDER = "sweeps"


def files() -> dict[str, Path]:
    """Files of the built-in specs by name."""
    clone = Path(__file__).parents[2] / FOLDER
    if clone.is_dir():
        return {path.stem: path for path in clone.glob("*.yaml")}
    try:
        installed = metadata.files("dwsweep") or []
    except metadata.PackageNotFoundError:
        return {}
    return {file.stem: Path(str(file.locate())) for file in installed if file.match(f"{FOLDER}/*.yaml")}
