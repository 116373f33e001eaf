"""The flight recorder: the last minutes of a host, kept in memory and written to disk when a fault is found."""
