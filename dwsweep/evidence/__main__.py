"""``python -m dwsweep.evidence``, from the top of the repository: fit every source anew."""

from dwsweep.evidence.summary import summaries, write

if __name__ == "__main__":
    write(summaries())
