"""What all subjects share: their contract, rounds, counters, and the list of them all."""
