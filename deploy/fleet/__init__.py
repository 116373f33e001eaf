"""Worked examples of more than one Prometheus: shards, a pair, a long-term store, agents."""
