"""What the exporter tells of itself."""
