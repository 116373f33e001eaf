"""What was published of a host over a window, and what that says in the playbook's words."""
