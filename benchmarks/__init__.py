"""Fast paths against their slow oracles, side by side in one process."""
