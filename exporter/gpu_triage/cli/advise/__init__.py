"""Advice on using one GPU or several for a job on this host."""
