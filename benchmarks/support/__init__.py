"""What the benchmarks share: payloads, processes, load clients and statistics."""
