"""docs/reproduction.md: its tables, its figures and every number in it, from committed results.

`python -m reproduction collect RUNS` puts the results of sweeps into a few tables that are small
enough to be kept; `python -m reproduction` writes the page from them.
"""
