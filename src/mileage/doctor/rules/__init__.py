"""The rules, one family per file; each file ends with the tuple of its rules."""
