"""History of faults of boards and slots: the incident ledger and its file."""
