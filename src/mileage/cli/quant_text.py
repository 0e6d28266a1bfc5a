"""Text that formats are chosen and judged on: windows of the user's files or the doctor's pages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from mileage.cli.quant_arguments import KvArguments
from mileage.core.errors import ConfigError
from mileage.doctor.rules.all_rules import RULES
from mileage.quant.measured import MeasuredModel, Window

__all__ = ["Texts", "texts"]


class Texts(NamedTuple):
    """Windows that have no token in common."""

    calibration: tuple[Window, ...]
    held_out: tuple[Window, ...]


def texts(model: MeasuredModel, arguments: KvArguments) -> Texts:
    """The windows asked for, evenly over the text. Raises ConfigError for too little text."""
    own = model.windows(_read(arguments.text, "--text"), arguments.window)
    if arguments.held_out is not None:
        other = model.windows(_read(arguments.held_out, "--held-out"), arguments.window)
    elif len(own) < 2:
        expected = f"two windows of {arguments.window} tokens, or --held-out"
        raise ConfigError("--text", str(arguments.text), expected)
    else:
        own, other = own[::2], own[1::2]
    return Texts(
        calibration=_spread(own, arguments.windows),
        held_out=_spread(other, arguments.held_out_windows),
    )


def _spread(windows: Sequence[Window], count: int) -> tuple[Window, ...]:
    count = min(count, len(windows))
    return tuple(windows[int((i + 0.5) * len(windows) / count)] for i in range(count))


def _read(path: Path | None, key: str) -> str:
    if path is None:
        return "\n\n".join(f"{rule.title}\n\n{rule.page}" for rule in RULES)
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ConfigError(key, str(path), "a file of UTF-8 text") from None
    except OSError as error:
        expected = f"a file that can be read ({error.strerror or error})"
        raise ConfigError(key, str(path), expected) from None
