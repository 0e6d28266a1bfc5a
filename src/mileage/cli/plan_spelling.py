"""Spellings of a plan's dimensions: `none,3:0.7`, `1+3`, `64:25`, `2:mps:1.3`, `h20=2.5`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, TypeVar, get_args

from mileage.cli.simulate_spelling import graph_sizes_of
from mileage.core.bounds import require_range
from mileage.core.errors import ConfigError
from mileage.costmodel.catalogue import gpu as known_gpu
from mileage.costmodel.precision import KvPrecision
from mileage.planner.candidate import Disaggregation, GraphSizes, HostTier, Sharing
from mileage.sim.engine_features import SpeculationConfig
from mileage.workload.synthetic.spelling import seconds_of

__all__ = [
    "apart_of",
    "counts_of",
    "drafts_of",
    "graphs_of",
    "kv_of",
    "listed",
    "prices_of",
    "sharings_of",
    "tiers_of",
    "yes_no_of",
]

T = TypeVar("T")

_NONE: Final = "none"
_PRICE_MAX_USD: Final = 1e6
_COUNT: Final = re.compile(r"[1-9][0-9]{0,6}")
_NUMBER: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")


def listed(key: str, text: str) -> list[str]:
    """The items of a list, each once. Raises ConfigError."""
    items = [item.strip() for item in text.split(",")]
    if not all(items) or len(set(items)) < len(items):
        raise ConfigError(key, text, "values separated by commas, each once and none of them empty")
    return items


def counts_of(key: str, text: str | None) -> tuple[int, ...] | None:
    """Whole numbers from 1 on; None: as it usually is. Raises ConfigError."""
    if text is None:
        return None
    items = listed(key, text)
    if not all(_COUNT.fullmatch(item) for item in items):
        raise ConfigError(key, text, "whole numbers from 1 on, such as 1,2,4")
    return tuple(int(item) for item in items)


def yes_no_of(key: str, text: str) -> tuple[bool, ...]:
    """yes, no, or both. Raises ConfigError."""
    items = listed(key, text)
    if not set(items) <= {"yes", "no"}:
        raise ConfigError(key, text, "yes, no, or yes,no")
    return tuple(item == "yes" for item in items)


def kv_of(text: str | None) -> tuple[KvPrecision, ...] | None:
    """Precisions of the KV cache. Raises ConfigError."""
    if text is None:
        return None
    known: dict[str, KvPrecision] = {kind: kind for kind in get_args(KvPrecision)}
    items = listed("--kv-dtype", text)
    if not set(items) <= set(known):
        raise ConfigError("--kv-dtype", text, f"of {', '.join(known)}")
    return tuple(known[item] for item in items)


def graphs_of(texts: Sequence[str] | None) -> tuple[GraphSizes, ...]:
    """default, none, or sizes. Raises ConfigError."""
    return tuple(
        "default" if text == "default" else graph_sizes_of(text) or "none"
        for text in texts or ("default",)
    )


def drafts_of(text: str | None) -> tuple[SpeculationConfig | None, ...]:
    """none, and DRAFTED:ACCEPTED[:TIME]. Raises ConfigError."""

    def one(parts: list[str]) -> SpeculationConfig:
        drafted, accepted, *time = parts
        return SpeculationConfig(
            draft_tokens=_whole(drafted),
            acceptance_ratio=_number(accepted),
            draft_step_s=seconds_of("--speculation", time[0]) if time else 0.0,
        )

    expected = "none, or DRAFTED:ACCEPTED[:TIME], such as 3:0.7:2ms"
    return _each("--speculation", text, one, expected, (2, 3))


def apart_of(text: str | None) -> tuple[Disaggregation | None, ...]:
    """none, and PREFILL+DECODE. Raises ConfigError."""

    def one(parts: list[str]) -> Disaggregation:
        prefill, _, decode = parts[0].partition("+")
        return Disaggregation(prefill_engines=_whole(prefill), decode_engines=_whole(decode))

    expected = "none, or PREFILL+DECODE engines, such as 1+3"
    return _each("--disaggregation", text, one, expected, (1,))


def tiers_of(text: str | None) -> tuple[tuple[HostTier, ...], ...]:
    """none, and GB[:GB/S]. Raises ConfigError."""

    def one(parts: list[str]) -> HostTier:
        rate = _number(parts[1]) if len(parts) > 1 else None
        return HostTier(gb_per_gpu=_number(parts[0]), gb_per_s=rate)

    found = _each("--kv-tier", text, one, "none, or GB[:GB/S], such as 64:25", (1, 2))
    return tuple(() if each is None else (each,) for each in found)


def sharings_of(text: str | None) -> tuple[Sharing | None, ...]:
    """none, and REPLICAS[:MODE[:RATIO]]. Raises ConfigError."""

    def one(parts: list[str]) -> Sharing:
        count, mode, ratio = (*parts, *("time", "1")[len(parts) - 1 :])
        ratio_of_all = _number(ratio)
        match mode:
            case "time" | "mps" | "mig":
                return Sharing(replicas=_whole(count), mode=mode, capacity_ratio=ratio_of_all)
        raise ValueError(mode)

    expected = "none, or REPLICAS[:MODE[:RATIO]], such as 2:time, 2:mps:1.3 or 4:mig"
    return _each("--share", text, one, expected, (1, 2, 3))


def prices_of(texts: Sequence[str] | None) -> dict[str, float]:
    """GPU=USD, by the GPU's name in the catalogue. Raises ConfigError."""
    found: dict[str, float] = {}
    for text in texts or ():
        name, equals, usd = text.partition("=")
        if not equals or not _NUMBER.fullmatch(usd.strip()):
            raise ConfigError("--price", text, "GPU=USD for an hour, such as h20=2.5")
        try:
            card = known_gpu(name.strip())
        except ConfigError as error:
            raise error.named("--price") from None
        found[card.name] = float(usd)
        require_range("--price", found[card.name], 0.0, _PRICE_MAX_USD)
    return found


def _each(
    key: str,
    text: str | None,
    one: Callable[[list[str]], T],
    expected: str,
    sizes: tuple[int, ...],
) -> tuple[T | None, ...]:
    """none or a value for each item."""
    found: list[T | None] = []
    for item in listed(key, text or _NONE):
        if item == _NONE:
            found.append(None)
            continue
        parts = item.split(":")
        if len(parts) not in sizes:
            raise ConfigError(key, item, expected)
        try:
            found.append(one(parts))
        except ConfigError as error:
            raise ConfigError(key, item, f"{error.expected} ({expected})") from None
        except ValueError:
            raise ConfigError(key, item, expected) from None
    return tuple(found)


def _whole(text: str) -> int:
    if not _COUNT.fullmatch(text.strip()):
        raise ValueError(text)
    return int(text)


def _number(text: str) -> float:
    if not _NUMBER.fullmatch(text.strip()):
        raise ValueError(text)
    return float(text)
