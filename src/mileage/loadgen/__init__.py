"""Load generator: real requests on a schedule, and what became of each."""
