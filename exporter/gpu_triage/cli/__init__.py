"""The command line: ``serve``, which starts the daemon, and the tools."""
