"""Figures from the results of `memloc run` and `memloc control`.

`registry` knows them all, those of the paper too; `results` draws those of single results.
matplotlib is used without pyplot, so that nothing of a user's own plotting changes.
"""
