"""A real vLLM (its CPU build) to be measured, and our plugin's control of it."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

from benchmarks.support.processes import LOCAL, NotReadyError, Service, free_port
from mileage.engines.config import EmbeddedConfig
from mileage.engines.embedded.model_cache import cache_directory
from mileage.engines.embedded.resolve import resolve_model

__all__ = ["MODEL_NAME", "VLLM_PYTHON", "VllmEngine", "bench_model"]

_ROOT = Path(__file__).resolve().parents[2]
VLLM_PYTHON = _ROOT / ".venvs" / "vllm" / "bin" / "python"
MODEL_NAME = "small"
_START_S = 600.0
_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 384,
    "intermediate_size": 1024,
    "num_hidden_layers": 6,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "float32",
}
"""A long prompt takes some tens of times as long as a step that only generates."""
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "2",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}


def bench_model(directory: Path) -> Path:
    """A Llama of six layers with SmolLM2's tokenizer and no weights, for `--load-format dummy`.

    Raises NotReadyError where the tokenizer cannot be made.
    """
    gguf = resolve_model(EmbeddedConfig(), progress=lambda *_: None, environ=os.environ)
    whole = cache_directory(os.environ) / "vllm" / gguf.stem
    script = _ROOT / "scripts" / "convert-smollm2.py"
    made = subprocess.run(
        [str(VLLM_PYTHON), str(script), str(gguf), str(whole)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if made.returncode:
        raise NotReadyError(f"no model for vLLM: {made.stdout[-2000:].decode(errors='replace')}")
    model = directory / "model"
    model.mkdir()
    for file in whole.iterdir():
        if "token" in file.name or file.name in ("vocab.json", "merges.txt", "chat_template.jinja"):
            shutil.copy(file, model / file.name)
    (model / "config.json").write_text(json.dumps(_CONFIG))
    return model


class VllmEngine:
    """One server. `plugin`: with Mileage's inside; its control's token is made by chance."""

    def __init__(self, name: str, model: Path, directory: Path, *, plugin: bool) -> None:
        self.port = free_port()
        self.name = name
        self._token = secrets.token_hex(16)
        environment = {**_ENVIRONMENT, "VLLM_PLUGINS": "mileage" if plugin else ""}
        if plugin:
            environment["MILEAGE_CONTROL_TOKEN"] = self._token
        self.service = Service(
            name,
            [
                *(str(VLLM_PYTHON), "-m", "vllm.entrypoints.openai.api_server"),
                *("--model", str(model), "--served-model-name", MODEL_NAME),
                *("--host", "127.0.0.1", "--port", str(self.port), "--load-format", "dummy"),
                *("--dtype", "float32", "--enforce-eager", "--max-model-len", "4096"),
            ],
            core=None,
            log=directory / f"{name}.log",
            env=environment,
        )

    def wait_ready(self) -> None:
        """Raises NotReadyError with the end of its log."""
        self.service.wait_ready(f"http://127.0.0.1:{self.port}/health", _START_S)

    def token_of(self, text: str) -> int:
        """The one token that the text is."""
        asked = {"model": MODEL_NAME, "prompt": text, "add_special_tokens": False}
        (token,) = self._call("/tokenize", asked)["tokens"]
        return int(token)

    def control(self, policy: dict[str, object] | None) -> dict[str, Any]:
        """Have the policy decide inside the engine, or none; gives what /mileage/control says."""
        return self._call("/mileage/control", {"policy": policy, "lease_s": None, "wait_s": 10.0})

    def state(self) -> dict[str, Any]:
        """What /mileage/control says."""
        return self._call("/mileage/control", None)

    def _call(self, path: str, body: dict[str, object] | None) -> dict[str, Any]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Content-Type": "application/json",
                "Authorization": f"Bearer {self._token}",
            },
        )
        with LOCAL.open(request, timeout=120.0) as answer:
            found: dict[str, Any] = json.load(answer)
        return found
