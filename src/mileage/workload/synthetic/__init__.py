"""Synthetic workloads: arrivals, lengths and what is shared, drawn from stated distributions."""
