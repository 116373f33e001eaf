"""Subjects read from the host: each module contains one subject's reading, reader and samples."""
