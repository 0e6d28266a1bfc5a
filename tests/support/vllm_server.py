"""A real vLLM (its CPU build) on loopback for tests, serving SmolLM2 in float32."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx
import psutil

from mileage.engines.config import EmbeddedConfig
from mileage.engines.embedded.resolve import resolve_model
from tests.support.gateway import free_port

__all__ = [
    "CONTROL_TOKEN",
    "ENVIRONMENT",
    "PLUGIN",
    "START_S",
    "VllmServer",
    "converted_model",
    "tiny_model",
]

START_S = 600.0
STOP_S = 30.0
CONVERT_S = 300.0
_ROOT = Path(__file__).resolve().parents[2]
_LOG_CHARS_MAX = 10_000

CONTROL_TOKEN = "the-token-of-control-in-tests"
PLUGIN = {"VLLM_PLUGINS": "mileage", "MILEAGE_CONTROL_TOKEN": CONTROL_TOKEN}
"""Environment of a server whose engine can be controlled."""


def converted_model(python: Path) -> Path:
    """SmolLM2 as vLLM loads it, made once from the embedded engine's file and kept in the cache."""
    gguf = resolve_model(EmbeddedConfig(), progress=lambda label, done, total: None)
    directory = Path(os.environ["MILEAGE_CACHE_DIR"]) / "vllm" / gguf.stem
    command = [str(python), str(_ROOT / "scripts" / "convert-smollm2.py"), str(gguf)]
    command.append(str(directory))
    ended = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=CONVERT_S, check=False
    )
    assert ended.returncode == 0, ended.stdout[-_LOG_CHARS_MAX:].decode(errors="replace")
    return directory


def tiny_model(python: Path, directory: Path) -> Path:
    """A Llama of two small layers with SmolLM2's tokenizer: steps of milliseconds, random text.

    It has no weights: start with `--load-format dummy`.
    """
    model = directory / "tiny"
    model.mkdir()
    for file in converted_model(python).iterdir():
        if "token" in file.name or file.name in ("vocab.json", "merges.txt", "chat_template.jinja"):
            shutil.copy(file, model / file.name)
    (model / "config.json").write_text(json.dumps(_TINY))
    return model


class VllmServer:
    """One vLLM server process with its engine; `arguments` are further ones of its command line.

    `environment` is added to that of the tests, such as PLUGIN.
    """

    def __init__(
        self,
        python: Path,
        model: Path,
        directory: Path,
        *arguments: str,
        name: str = "smollm2",
        environment: Mapping[str, str] = {},
    ) -> None:
        self._environment = {**ENVIRONMENT, **environment}
        self._log = directory / "vllm.log"
        self.directory = directory
        self.name = name
        self._command = [
            *(str(python), "-m", "vllm.entrypoints.openai.api_server"),
            *("--model", str(model), "--served-model-name", name, "--host", "127.0.0.1"),
            # bfloat16 without its instructions is several times slower; nothing to compile for.
            *("--dtype", "float32", "--enforce-eager", *arguments),
        ]
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    @property
    def log(self) -> str:
        """The end of what it wrote."""
        text = self._log.read_text(errors="replace") if self._log.exists() else ""
        return text[-_LOG_CHARS_MAX:]

    @property
    def pid(self) -> int:
        """Of the API server; the engine is a child of it."""
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*self._command, "--port", str(port)],
                cwd=self.directory,
                env={**os.environ, **self._environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            self._wait_healthy()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def _wait_healthy(self) -> None:
        assert self._process is not None
        deadline_s = time.monotonic() + START_S
        while time.monotonic() < deadline_s:
            code = self._process.poll()
            assert code is None, f"vLLM ended with {code}:\n{self.log}"
            try:
                if httpx.get(f"{self.url}/health", timeout=5.0).is_success:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.5)
        raise AssertionError(f"vLLM does not serve within {START_S:g} s:\n{self.log}")

    def _stop(self) -> None:
        """End it and its engine process."""
        assert self._process is not None
        family: list[psutil.Process] = []
        if self._process.poll() is None:
            family = psutil.Process(self._process.pid).children(recursive=True)
            self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_S)
        _, alive = psutil.wait_procs(family, timeout=STOP_S)
        for process in alive:
            process.kill()


ENVIRONMENT = {
    "OMP_NUM_THREADS": "2",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}

_TINY = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "float32",
}
