"""Configuration of engines out of one plan: a file for each engine, pure functions to text."""
