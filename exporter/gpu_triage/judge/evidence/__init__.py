"""A host's published metrics over a time window, and what they show in the playbook's terms."""
