"""What is wrong with this host: the verdicts that people ask for at a prompt."""
