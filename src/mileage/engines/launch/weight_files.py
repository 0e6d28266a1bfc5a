"""The weight files of a model: a file, a directory, or the hub's cache on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from mileage.core.errors import FileError

__all__ = ["weight_files"]

_ENDINGS: Final = (".safetensors", ".gguf", ".bin", ".pt", ".pth")
_FILES_MAX: Final = 10_000


def weight_files(model: str, environ: Mapping[str, str]) -> list[Path]:
    """Files with weights of `model`, in the order of their names, which is how engines read them.

    A name such as OWNER/NAME is looked up in the hub's cache (HF_HUB_CACHE, HF_HOME). Where a
    directory has safetensors, its other formats are left out. Raises FileError where none is found.
    """
    path = Path(model).expanduser()
    if path.is_file():
        return [path]
    if not path.is_dir():
        path = _snapshot(model, environ)
    found = sorted(each for each in _listed(path) if each.suffix in _ENDINGS and each.is_file())[
        :_FILES_MAX
    ]
    if any(each.suffix == ".safetensors" for each in found):
        found = [each for each in found if each.suffix == ".safetensors"]
    if not found:
        raise FileError(str(path), f"has no weights ({', '.join(_ENDINGS)})")
    return found


def _listed(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError as error:
        raise FileError(str(directory), f"cannot be read: {error.strerror}") from None


def _snapshot(model: str, environ: Mapping[str, str]) -> Path:
    home = Path(environ.get("HF_HOME") or "~/.cache/huggingface").expanduser()
    cache = Path(environ.get("HF_HUB_CACHE") or home / "hub")
    own = cache / f"models--{model.replace('/', '--')}"
    try:
        revision = (own / "refs" / "main").read_text().strip()
    except (OSError, ValueError):
        raise FileError(model, f"is no file or directory, and is not in {cache}") from None
    return own / "snapshots" / revision
