"""Two recipes over the same shapes: where their losses, transitions and best depths part."""
