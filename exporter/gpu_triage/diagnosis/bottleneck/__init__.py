"""Which resource is scarce first for one GPU, and for how long it has been so."""
