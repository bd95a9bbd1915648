"""The fit against losses whose answer is known: the truths, and how often the intervals hold them."""
