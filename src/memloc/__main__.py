"""`python -m memloc`: the same as the command `memloc`."""

from memloc.cli import main

main()
