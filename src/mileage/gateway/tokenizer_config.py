"""TokenizerConfig: which models' prompts are counted in tokens as they come, and within what."""

from __future__ import annotations

import msgspec

from mileage.core.bounds import require_positive, require_range
from mileage.core.errors import ConfigError

__all__ = ["ANY_MODEL", "TokenizerConfig"]

ANY_MODEL = "*"


class TokenizerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[tokenizer]`: prompts are counted by their model's tokenizer before they are let in.

    Without it, and where a count does not come in time, a token is taken to be four bytes of JSON.
    """

    models: dict[str, str] = {}
    """Model, or `*` for all others -> its tokenizer.json, the directory that has it, or the model's
    directory in a Hugging Face cache. Nothing is downloaded. Needs mileage[tokenizer]."""
    threads: int = 1
    """Of each worker, that count beside its event loop."""
    waiting_max: int = 64
    """Prompts of a worker that wait for a count; what comes then is estimated."""
    wait_max_s: float = 0.25
    """A prompt whose count takes longer is estimated."""
    bytes_min: int = 4096
    """A prompt of fewer bytes of JSON is estimated: a wrong guess costs little."""
    bytes_max: int = 1024 * 1024
    """A prompt of more, or in a larger body, is estimated."""

    def __post_init__(self) -> None:
        for model, path in self.models.items():
            if not model or not path:
                raise ConfigError(f"tokenizer.models.{model}", path, "a path, for a model's name")
        require_range("tokenizer.threads", self.threads, 1, 64)
        require_range("tokenizer.waiting_max", self.waiting_max, 1, 100_000)
        require_positive("tokenizer.wait_max_s", self.wait_max_s)
        require_range("tokenizer.wait_max_s", self.wait_max_s, 0.001, 60)
        require_range("tokenizer.bytes_max", self.bytes_max, 1, 1 << 30)
        require_range("tokenizer.bytes_min", self.bytes_min, 0, self.bytes_max)
