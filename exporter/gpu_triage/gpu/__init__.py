"""What is read from each GPU: a subject a file, its reading, reader and samples together."""
