"""Small real LoRA adapters for SmolLM2-135M, random and strong enough to change its answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import GGUFWriter

__all__ = ["lora_gguf"]

_LAYERS, _WIDTH = 30, 576


def lora_gguf(
    path: Path, seed: int, *, rank: int = 4, scale: float = 0.3, width: int = _WIDTH
) -> Path:
    """One of all query projections, the same for the same seed (0.5 MB); with
    another width it does not fit."""
    rng = np.random.default_rng(seed)
    writer = GGUFWriter(path, "llama")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", float(rank))
    for layer in range(_LAYERS):
        for part, shape in (("a", (rank, width)), ("b", (width, rank))):
            values = rng.standard_normal(shape) * scale
            writer.add_tensor(f"blk.{layer}.attn_q.weight.lora_{part}", values.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
