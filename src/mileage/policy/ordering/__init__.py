"""Ordering: which prompt an engine prefills next; `policy.budget` says how much of it."""
