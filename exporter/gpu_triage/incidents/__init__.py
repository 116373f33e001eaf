"""What happened to boards and slots before: the ledger and its file."""
