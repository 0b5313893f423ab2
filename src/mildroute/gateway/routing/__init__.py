"""Which expert answers a request."""
