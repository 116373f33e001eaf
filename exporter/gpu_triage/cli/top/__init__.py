"""``gpu-triage top``: the verdict on a host and its GPUs, live in a terminal."""
