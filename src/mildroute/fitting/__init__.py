"""From a cost table to a fitted router with an operating point."""
