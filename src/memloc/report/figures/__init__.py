"""Figures and tables of the paper, from the results of `memloc run` and `memloc control`.

`registry` lists them all; every other module draws one of them, or a family. matplotlib is used
without pyplot, so that nothing of a user's own plotting changes.
"""
