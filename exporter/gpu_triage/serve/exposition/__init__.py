"""The metrics as text: encoded, compressed, and kept until they change."""
