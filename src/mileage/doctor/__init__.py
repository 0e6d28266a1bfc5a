"""Why GPUs are idle or latency is high: facts in, findings with evidence out. Pure."""
