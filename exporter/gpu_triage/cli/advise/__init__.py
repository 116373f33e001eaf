"""Advice on whether a second GPU of this host pays for a training job."""
