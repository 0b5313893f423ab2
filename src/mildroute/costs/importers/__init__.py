"""Evaluation logs of other tools as cost tables."""
