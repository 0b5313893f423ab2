"""Metrics, traces and logs of the gateway."""
