"""What can be found on a host, what was found, and what that means for its GPUs."""
