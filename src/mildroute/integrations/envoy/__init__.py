"""An Envoy external processor: Envoy carries the traffic, and asks here which expert it goes to."""
