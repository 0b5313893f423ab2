"""Authentication and limits: which clients may call, and how much."""
