"""Small real LoRA adapters as PEFT writes them, strong enough to change a model's answers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

__all__ = ["lora_peft"]


def lora_peft(directory: Path, seed: int, *, rank: int = 4, scale: float = 3.0) -> Path:
    """One for the tiny model of `vllm_server`, as PEFT writes them: of its output projections."""
    directory.mkdir()
    rng = np.random.default_rng(seed)
    header: dict[str, object] = {}
    data = b""
    for layer in range(_TINY_LAYERS):
        for part, shape in (("A", (rank, _TINY_WIDTH)), ("B", (_TINY_WIDTH, rank))):
            values = (rng.standard_normal(shape) * scale).astype("<f4").tobytes()
            name = f"base_model.model.model.layers.{layer}.self_attn.o_proj.lora_{part}.weight"
            span = [len(data), len(data) + len(values)]
            header[name] = {"dtype": "F32", "shape": shape, "data_offsets": span}
            data += values
    head = json.dumps(header).encode()
    file = directory / "adapter_model.safetensors"
    file.write_bytes(len(head).to_bytes(8, "little") + head + data)
    (directory / "adapter_config.json").write_text(json.dumps({**_PEFT, "r": rank}))
    return directory


_TINY_LAYERS, _TINY_WIDTH = 2, 64
_PEFT = {
    "peft_type": "LORA",
    "task_type": "CAUSAL_LM",
    "base_model_name_or_path": "tiny",
    "target_modules": ["o_proj"],
    "lora_alpha": 4,
    "bias": "none",
}
