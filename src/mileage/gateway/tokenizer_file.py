"""Tokenizer files: where a model's tokenizer.json is, and what reads it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from mileage.core.errors import ConfigError
from mileage.gateway.tokenizer_config import TokenizerConfig

__all__ = ["BatchTokenizer", "check_tokenizers", "load_tokenizer", "tokenizer_file"]

_NAME: Final = "tokenizer.json"


class BatchTokenizer(Protocol):
    """What is used of `tokenizers.Tokenizer`: the calls that leave the interpreter to others."""

    def encode_batch_fast(
        self, input: Sequence[str], *, add_special_tokens: bool = ...
    ) -> Sequence[Any]:
        """One encoding for each text; its `len` is the number of tokens."""
        ...


def tokenizer_file(key: str, place: str) -> Path:
    """The tokenizer.json of a file, a directory, or a model's directory in a Hugging Face cache.

    Raises ConfigError, of `key`, where there is none.
    """
    path = Path(place).expanduser()
    if path.is_dir():
        snapshots = path / "snapshots"
        path = _snapshot(key, path, snapshots) if snapshots.is_dir() else path / _NAME
    if not path.is_file():
        raise ConfigError(key, place, f"a {_NAME}, or a directory with one: {path} is no file")
    return path


def _snapshot(key: str, cached: Path, snapshots: Path) -> Path:
    """Of the revision that the cache takes for `main`, or of the only one that is there."""
    main = cached / "refs" / "main"
    found = sorted(path.name for path in snapshots.iterdir() if path.is_dir())
    if main.is_file():
        found = [main.read_text(encoding="ascii", errors="replace").strip()]
    if len(found) != 1:
        expected = f"one revision below {snapshots}, or refs/main; there are {len(found)}"
        raise ConfigError(key, str(cached), expected)
    return snapshots / found[0] / _NAME


def load_tokenizer(key: str, place: str) -> BatchTokenizer:
    """Raises ConfigError, of `key`, where it cannot be used."""
    path = tokenizer_file(key, place)
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise ConfigError(key, place, "the extra mileage[tokenizer] to be installed") from error
    try:
        tokenizer = Tokenizer.from_file(str(path))
        # A file may say that texts are cut, or filled up, to some length.
        tokenizer.no_truncation()
        tokenizer.no_padding()
    except Exception as error:  # the library raises nothing narrower
        raise ConfigError(key, str(path), f"a {_NAME} that can be read: {error}") from error
    return tokenizer


def check_tokenizers(config: TokenizerConfig) -> None:
    """Raises ConfigError for the first that cannot be used."""
    for model, place in config.models.items():
        load_tokenizer(f"tokenizer.models.{model}", place)
