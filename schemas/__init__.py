"""The wire format, the settings and the error tree. The lowest layer: imports nothing of ours."""
