"""Theory of depth and width, before anything is trained: separation-rank bounds and bottlenecks of width."""
