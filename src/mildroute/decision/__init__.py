"""Deciding which expert handles an input, and the log of decisions and their outcomes."""
