"""What the documents say: every command is run, every name exists."""
