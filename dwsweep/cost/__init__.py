"""Cost of a shape: FLOPs, memory, disk, time. Pure arithmetic; every assumption is named."""
