"""What was found, put together: for people, for programs, and as an exit code."""
