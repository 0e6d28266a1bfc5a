"""Reference model: a model run in float32 whose keys and values can be stored in any format.

The only modules that need torch and transformers; both are imported when a model is loaded.
"""
