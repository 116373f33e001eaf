"""What is read: one subject, one file, with its reading, reader, metrics and samples."""
