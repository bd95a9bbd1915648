"""What a table of runs means: its formats, its numbers."""
