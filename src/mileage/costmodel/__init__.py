"""Cost models: how long a step of an engine takes, and what that costs."""
