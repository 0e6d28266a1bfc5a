"""Root causes over time: what went wrong first in a recorded history, and what it did."""
