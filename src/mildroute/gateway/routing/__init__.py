"""Routing of client requests through the decision layer."""
