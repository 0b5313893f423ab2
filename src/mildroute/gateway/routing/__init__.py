"""Routing of requests: from a client's request to the decision layer and back."""
