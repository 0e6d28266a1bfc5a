"""Mileage: more tokens per GPU-dollar from self-hosted LLM inference, within latency targets."""

__version__ = "0.1.0"

__all__ = ["__version__"]
