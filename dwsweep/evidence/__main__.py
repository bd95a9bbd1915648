"""``python -m dwsweep.evidence``, from the top of the repository: fit every source anew; ``--check``: test the
model; ``--try FILE.yaml``: predict a new source by the known ones, and the change that it would make."""

import sys
from pathlib import Path

from dwsweep.errors import InputError
from dwsweep.evidence import check
from dwsweep.evidence.summary import is_text, read, summaries, summarised, write

if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        for line in check.tables(read()):
            print(line, flush=True)
    elif len(sys.argv) == 3 and sys.argv[1] == "--try":
        path = Path(sys.argv[2])
        try:
            source = summarised(path)
        except InputError as error:
            sys.exit(f"{path}: {error}")
        for line in check.tried(read(), source, is_text(path)):
            print(line, flush=True)
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        write(summaries())
