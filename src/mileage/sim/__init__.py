"""Sim: a discrete-event simulator of engines behind the very controller of the gateway."""
