"""``python -m dwsweep.evidence``, from the top of the repository: fit every source anew; ``--check``: test the
model."""

import sys

from dwsweep.evidence import check
from dwsweep.evidence.summary import read, summaries, write

if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        for line in check.tables(read()):
            print(line, flush=True)
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        write(summaries())
