"""Calling the experts."""
