"""Sampling: send a share of requests to the other experts as well, and judge all answers."""
