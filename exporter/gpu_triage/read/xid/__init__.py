"""Xid errors: the codes and their meaning, the sources that report them, and counting."""
