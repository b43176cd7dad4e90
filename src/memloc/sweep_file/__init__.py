"""Experiment files: text, checks, settings and their exceptions; see `memloc.sweep_config`."""
