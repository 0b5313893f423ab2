"""Cascades, which call an expert, read its answer, and return it or call another expert."""
