"""The `frameloom` command line and the tools behind it."""
