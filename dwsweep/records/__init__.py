"""The files of a sweep directory, each one frozen, typed record: its fields with their units, its reading, its writing.

Training writes them, analysis reads them; no other data pass between the two. ``reader`` has the rules that hold for
all of them, the other modules the records themselves. ``dwsweep.sweep.directory`` knows the place of each file.
"""
