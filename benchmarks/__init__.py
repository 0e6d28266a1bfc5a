"""Benchmarks: each module measures one claim and prints one JSON object as its last line."""
