"""The rows of the table of findings, a module for each area of the playbook, each row with its words beside it."""
