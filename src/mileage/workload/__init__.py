"""Workload: traces of requests, read or made up; shared by the simulator and the load generator."""
