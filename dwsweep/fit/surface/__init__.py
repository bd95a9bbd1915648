"""The loss of all depths together: its form, its estimate, its draws, and what they say (the best depth)."""
