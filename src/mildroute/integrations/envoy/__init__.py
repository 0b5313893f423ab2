"""An Envoy external processor: Envoy forwards traffic to the expert that the processor chooses."""
