"""A directory that `mileage doctor record` has made: the facts in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from mileage.cli.doctor_dump_engines import read_engines
from mileage.cli.doctor_facts_file import decoded_facts
from mileage.core.errors import ConfigError
from mileage.doctor.collect.engine_facts import engine_facts
from mileage.doctor.collect.merge_facts import SourcedFacts, merge_facts
from mileage.doctor.collect.merge_replicas import merge_replicas

__all__ = ["FACTS_FILE", "read_dump"]

FACTS_FILE: Final = "facts.json"
_BYTES_MAX: Final = 64 * 1024 * 1024


def read_dump(directory: Path) -> dict[str, Any]:
    """The facts of a directory that `record` has made, and what else its engines' pages tell: they
    may have been written by a release that read less in them.

    Raises:
        ConfigError: it is none, or what is in it is not what `record` writes.
    """
    path = directory / FACTS_FILE
    try:
        if path.stat().st_size > _BYTES_MAX:
            raise ConfigError("--dump", str(path), f"at most {_BYTES_MAX >> 20} MiB")
        data = path.read_bytes()
    except OSError as error:
        expected = f"a directory of `mileage doctor record` ({error.strerror}: {FACTS_FILE})"
        raise ConfigError("--dump", str(directory), expected) from None
    document = decoded_facts(data, key="--dump", path=path)
    engines = [merge_facts(engine_facts(record)).document for record in read_engines(directory)]
    pages = merge_replicas([told for told in engines if told])
    return merge_facts(
        SourcedFacts(source=name, standing="measured", document=told)
        for name, told in ((FACTS_FILE, document), ("pages", pages))
    ).document
