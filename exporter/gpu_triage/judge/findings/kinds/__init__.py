"""The rows of the table of findings with their texts, one module per area of the playbook."""
