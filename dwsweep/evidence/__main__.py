"""``python -m dwsweep.evidence``, from the top of the repository: fit every source anew."""

from dwsweep.evidence.summary import HERE, summarised, write

if __name__ == "__main__":
    write([summarised(path) for path in sorted((HERE / "sources").glob("*.yaml"))])
