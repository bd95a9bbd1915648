"""How a command ends for the shell."""

DONE, SOME_FAILED, WRONG_INPUT, INTERRUPTED = 0, 1, 2, 3
