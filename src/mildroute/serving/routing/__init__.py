"""Which expert."""
