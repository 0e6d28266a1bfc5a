"""What a remedy brings: the simulated engine before and after, else the share that is wasted."""
