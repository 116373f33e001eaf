"""What is read from the host: a subject a file, its reading, reader and samples together."""
