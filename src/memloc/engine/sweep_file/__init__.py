"""Experiment files: text, checks, settings, exceptions; see `memloc.engine.sweep_config`."""
