"""Subjects read from each GPU: each module contains one subject's reading, reader and samples."""
