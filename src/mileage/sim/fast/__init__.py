"""The compiled path of the simulator: the same results as `Simulation`, a hundred times as fast."""
