"""The numbered figures and tables of the paper, drawn from the results at hand."""

from memloc.paper.figures import examples, layers, tables

__all__ = ["examples", "layers", "tables"]
