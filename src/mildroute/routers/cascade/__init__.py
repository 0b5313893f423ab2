"""Cascades: ask an expert, look at its answer, then return it or ask another."""
