"""What a client sends and is sent."""
