"""Requests and responses of clients."""
