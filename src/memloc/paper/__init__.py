"""Everything that belongs to the one paper: its tasks, presets, numbers, claims and figures."""
