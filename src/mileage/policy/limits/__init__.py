"""Limits: how many requests one replica runs at once; one policy per module."""
