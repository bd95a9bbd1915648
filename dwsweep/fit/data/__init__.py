"""Tables of runs: their formats, columns and numbers."""
