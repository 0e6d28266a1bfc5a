"""Prefix directory: which engines hold which blocks of KV cache, told by their events."""
