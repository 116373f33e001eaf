"""Worked examples with several Prometheus servers: shards, an HA pair, a long-term store, agents."""
