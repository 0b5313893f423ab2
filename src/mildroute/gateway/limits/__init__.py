"""Limits of client keys: requests per minute and dollars per day.

A request reserves its maximum cost before an expert is called, and settles its actual cost when it
ends. ``docs/proposals/limits.md`` explains this design.
"""
