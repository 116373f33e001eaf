"""What metrics, samples and collectors are, and what all subjects share."""
