"""Flight recorder: keeps the last minutes of a host in memory, and writes them to disk when a fault is found."""
