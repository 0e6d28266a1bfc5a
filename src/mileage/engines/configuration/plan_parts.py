"""The tables of an EnginePlan: adapters, speculation, and what only one engine asks for."""

from __future__ import annotations

import re
from typing import Final, Literal

import msgspec

from mileage.core.bounds import require_range
from mileage.core.errors import ConfigError

__all__ = [
    "LoraPlan",
    "OnnxPlan",
    "SpeculationPlan",
    "TritonPlan",
    "TrtllmPlan",
    "require_text",
]

_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_TEXT_MAX: Final = 4096
_ADAPTERS_MAX: Final = 10_000
_RANK_MAX: Final = 1024
_TOKENS_MAX: Final = 64
_THREADS_MAX: Final = 1024
_TOKEN_ID_MAX: Final = (1 << 31) - 1


def require_text(key: str, text: str) -> None:
    """Refuse what no command line takes as a value: nothing, an option, or unprintable text."""
    if not text.strip() or len(text) > _TEXT_MAX:
        raise ConfigError(key, text[:40], f"1 to {_TEXT_MAX} characters")
    if text[0] == "-" or _UNPRINTABLE.search(text):
        raise ConfigError(key, text[:40], "printable text that does not begin with -")


class LoraPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[lora]`: LoRA adapters. Raises ConfigError for figures that cannot be."""

    slots: int = 1
    """Adapters that a step may use at once, each with memory of its own."""
    rank_max: int = 16
    """The largest rank among them: what each slot has room for."""
    adapters: dict[str, str] = {}
    """Name in requests -> path or hub name. Those that are there from the start."""

    def __post_init__(self) -> None:
        require_range("lora.slots", self.slots, 1, _ADAPTERS_MAX)
        require_range("lora.rank_max", self.rank_max, 1, _RANK_MAX)
        for name, path in self.adapters.items():
            key = f"lora.adapters.{name}"
            require_text(key, path)
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,255}", name):
                expected = "a name of letters, digits and . _ / -, a letter or digit first"
                raise ConfigError("lora.adapters", name[:40], expected)


class SpeculationPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[speculation]`: tokens are guessed, and checked many at once. Raises ConfigError for
    a method without its model, or with one that it does not use."""

    method: Literal["draft", "ngram"]
    """draft: a smaller model guesses; ngram: what followed the same words before."""
    model: str | None = None
    """The smaller model, as `model`."""
    tokens: int = 3
    """Tokens that are guessed each time."""

    def __post_init__(self) -> None:
        require_range("speculation.tokens", self.tokens, 1, _TOKENS_MAX)
        if self.method == "draft" and self.model is None:
            raise ConfigError("speculation.model", None, "a model, for the method draft")
        if self.method == "ngram" and self.model is not None:
            raise ConfigError("speculation.model", self.model, "none: ngram has no model")
        if self.model is not None:
            require_text("speculation.model", self.model)


class TrtllmPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[trtllm]`: what only TensorRT-LLM asks for. Raises ConfigError for paths that are
    none."""

    backend: Literal["pytorch", "tensorrt"] = "pytorch"
    """pytorch: the checkpoint is served as it is; tensorrt: an engine is built of it before."""
    checkpoint: str = "checkpoint"
    """tensorrt: directory of the converted checkpoint that the engine is built of."""
    engine_dir: str = "engine"
    """tensorrt: directory that the engine is built in. Triton reads it, too."""

    def __post_init__(self) -> None:
        require_text("trtllm.checkpoint", self.checkpoint)
        require_text("trtllm.engine_dir", self.engine_dir)


class TritonPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[triton]`: what only Triton asks for. Raises ConfigError for figures that cannot
    be."""

    backend: Literal["tensorrt_llm", "python", "onnxruntime"] = "tensorrt_llm"
    """What runs the model."""
    gpus: tuple[int, ...] = ()
    """Indexes of the GPUs that instances are made on, `instances` on each (tensorrt_llm: on each
    tensor_parallel x pipeline_parallel of them, in this order). Empty: all there are; tensorrt_llm
    then chooses."""

    def __post_init__(self) -> None:
        for gpu in self.gpus:
            require_range("triton.gpus", gpu, 0, 1023)
        if len(set(self.gpus)) != len(self.gpus):
            raise ConfigError("triton.gpus", list(self.gpus), "each GPU once")


class OnnxPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[onnx]`: what only ONNX Runtime GenAI asks for. Raises ConfigError for figures that
    cannot be."""

    provider: Literal["cpu", "cuda", "dml", "webgpu"] = "cpu"
    """Execution provider: what computes."""
    file: str = "model.onnx"
    """The model's file, beside genai_config.json."""
    threads: int | None = None
    """Threads of one operator. None: the runtime's choice."""
    type: str | None = None
    """The model's family, as the model builder calls it: llama, qwen3, phi3. None: as the
    config.json of `model` or `architecture` says."""
    bos_token_id: int | None = None
    """Token that begins a text. None: as there."""
    eos_token_ids: tuple[int, ...] = ()
    """Tokens that end an answer. Empty: as there."""
    pad_token_id: int | None = None
    """Token that fills up a batch. None: as there, else the first of those that end an answer."""

    def __post_init__(self) -> None:
        require_text("onnx.file", self.file)
        if self.threads is not None:
            require_range("onnx.threads", self.threads, 1, _THREADS_MAX)
        if self.type is not None:
            require_text("onnx.type", self.type)
        for key in ("bos_token_id", "pad_token_id"):
            if (token := getattr(self, key)) is not None:
                require_range(f"onnx.{key}", token, 0, _TOKEN_ID_MAX)
        for token in self.eos_token_ids:
            require_range("onnx.eos_token_ids", token, 0, _TOKEN_ID_MAX)
