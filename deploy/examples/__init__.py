"""Makes the examples that are made from others; ``python -m deploy.examples`` writes them (``make examples``)."""
