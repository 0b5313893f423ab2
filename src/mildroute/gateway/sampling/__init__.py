"""Sampling, which sends a share of requests to the other experts too and judges all answers."""
