"""Readers: one trace format each; they take lines and give rows, and touch no file."""
