"""Parts of memloc; see the module names."""
