"""Cost-quality frontiers: routers along price weights, and the points that targets select."""
