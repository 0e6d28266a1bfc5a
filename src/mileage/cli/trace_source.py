"""open_trace(): the requests that a `--trace` argument means, whatever kind of thing it names."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from mileage.cli.trace_lines import Progress, file_lines, stream_lines
from mileage.core.errors import ConfigError
from mileage.workload.read_options import ReadOptions, ReadTally
from mileage.workload.source import read_trace
from mileage.workload.synthetic.config import SyntheticConfig
from mileage.workload.synthetic.generator import generate
from mileage.workload.synthetic.spelling import parse_synthetic, synthetic_config
from mileage.workload.trace_request import TraceRequest

__all__ = ["OpenTrace", "open_trace", "synthetic_of"]

_SYNTHETIC: Final = "synthetic:"


class OpenTrace:
    """The requests of one trace, by arrival: iterated over once, inside a `with` block.

    They are read as they are asked for; TraceError and ConfigError come then, too.
    """

    def __init__(self, name: str, requests: Iterable[TraceRequest], tally: ReadTally) -> None:
        self.name = name
        """What the trace is called."""
        self.tally = tally
        """What was found so far; of a synthetic one only the format."""
        self._requests = iter(requests)

    def __iter__(self) -> Iterator[TraceRequest]:
        return self._requests

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        close = getattr(self._requests, "close", None)
        if close is not None:
            close()  # a generator that was not read to its end has a file open


def open_trace(
    spec: str, *, options: ReadOptions | None = None, progress: Progress | None = None
) -> OpenTrace:
    """The trace that `spec` names: a file, `-` for standard input, or `synthetic:...`.

    `synthetic:` is followed by `key=value,...` (see parse_synthetic) or the path of a TOML file
    with the keys of SyntheticConfig. Raises ConfigError for a spec that names nothing, TraceError
    for what cannot be read, here or while it is read.
    """
    options = options or ReadOptions()
    tally = ReadTally()
    if spec.startswith(_SYNTHETIC):
        tally.format = "synthetic"
        config = synthetic_of(spec)
        return OpenTrace(spec, generate(config), tally)
    if spec == "-":
        lines = stream_lines(sys.stdin.buffer, "stdin")
        return OpenTrace(
            "stdin", read_trace(lines, path="stdin", options=options, tally=tally), tally
        )
    path = Path(spec)
    if not path.exists():
        raise ConfigError("trace", spec, "a file, a directory, `-`, or synthetic:rate=...")
    lines = file_lines(path, progress)
    return OpenTrace(spec, read_trace(lines, path=spec, options=options, tally=tally), tally)


def synthetic_of(spec: str) -> SyntheticConfig:
    """The configuration that a `synthetic:` spec stands for. Raises ConfigError."""
    text = spec.removeprefix(_SYNTHETIC)
    if "=" in text or not text.endswith(".toml"):
        return parse_synthetic(text)
    try:
        tree = tomllib.loads(Path(text).read_text("utf-8"))
    except OSError as error:
        expected = f"a readable file ({error.strerror or error})"
        raise ConfigError("synthetic", text, expected) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError("synthetic", text, f"TOML ({error})") from None
    return synthetic_config(tree)
