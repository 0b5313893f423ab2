"""Calls to the experts."""
