"""Small tokenizers as files, made by the library itself."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

__all__ = ["words_tokenizer"]


def words_tokenizer(path: Path, *, cut_at: int | None = None) -> Path:
    """A tokenizer.json by which each word is a token; `cut_at`: it says that texts are cut."""
    tokenizer = Tokenizer(WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    if cut_at is not None:
        tokenizer.enable_truncation(cut_at)
    path.parent.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(path))
    return path
