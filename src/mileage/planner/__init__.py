"""Planner: the cheapest set-up that meets the targets, found by bounds and the simulator."""
