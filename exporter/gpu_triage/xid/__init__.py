"""Xid errors: the codes and their meaning, where they are heard, and how often they came."""
