"""What theory says before anything is trained: separation-rank bounds, bottlenecks of width, the published law."""
