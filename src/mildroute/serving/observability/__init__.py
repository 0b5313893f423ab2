"""What the gateway reports."""
