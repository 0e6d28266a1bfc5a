"""Budget: how many prompt tokens an engine computes in its next step."""
