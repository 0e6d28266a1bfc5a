"""Quant: what fewer bits in the KV cache and the weights cost in quality, and the best mix."""
