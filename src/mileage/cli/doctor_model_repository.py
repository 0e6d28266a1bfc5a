"""Triton's model repository in a directory, for `mileage doctor --model-repository`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from mileage.core.errors import ConfigError
from mileage.doctor.collect.merge_facts import SourcedFacts
from mileage.doctor.collect.triton_config import repository_models, triton_config_facts

__all__ = ["repository_parts"]

_KEY: Final = "--model-repository"
_PATTERNS: Final = ("*/config.pbtxt", "*/*/model.json", "config.pbtxt")
_FILES_MAX: Final = 1_000
_BYTES_MAX: Final = 4 * 1024 * 1024


def repository_parts(directory: Path | None) -> list[SourcedFacts]:
    """Settings of the models' configurations; none where no directory is given.

    Raises:
        ConfigError: it cannot be read, has no config.pbtxt, or one of them is none of Triton.
    """
    if directory is None:
        return []
    files: dict[str, str] = {}
    try:
        for pattern in _PATTERNS:
            for path in sorted(directory.glob(pattern))[: _FILES_MAX - len(files)]:
                if path.stat().st_size > _BYTES_MAX:
                    raise ConfigError(_KEY, str(path), f"at most {_BYTES_MAX >> 20} MiB")
                name = path.relative_to(directory.parent) if path.parent == directory else None
                text = path.read_text(encoding="utf-8-sig", errors="replace")
                files[str(name or path.relative_to(directory))] = text
    except OSError as error:
        raise ConfigError(_KEY, str(directory), f"a directory ({error.strerror})") from None
    models = repository_models(files)
    if not models:
        raise ConfigError(_KEY, str(directory), "a directory with NAME/config.pbtxt")
    document = triton_config_facts(models)
    return [SourcedFacts(source=str(directory), standing="configured", document=document)]
