"""Eviction: which block of a prefix cache goes when its room is needed."""
