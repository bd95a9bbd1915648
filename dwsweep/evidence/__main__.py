"""``python -m dwsweep.evidence``, from the top of the repository: fit every source anew."""

from dwsweep.evidence.record import write
from dwsweep.evidence.summary import summaries

if __name__ == "__main__":
    write(summaries())
