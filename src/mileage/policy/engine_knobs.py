"""Limits of an engine that can change while it runs: their bounds, and the control's documents.

The engine clamps what it is asked for, and tells what came of it. What it must never change (the
slots of its runner, the sizes of its buffers) is no knob.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

from mileage.core.errors import ConfigError

__all__ = [
    "KNOBS",
    "Bounds",
    "Capabilities",
    "Clamp",
    "ControlDocument",
    "ControlRequest",
    "EngineKnobs",
    "RankState",
    "clamp",
    "decode_control_request",
    "merge_knobs",
]

KNOBS: Final = ("active_max", "step_tokens_max", "long_prefill_tokens_max", "waiting_max")

Bounds: TypeAlias = Mapping[str, tuple[int, int]]
"""Lowest and highest value of each knob, both included."""
Capabilities: TypeAlias = Mapping[str, bool | str]
"""Of each knob: True, or why this engine cannot change it."""

_LEASE_MAX_S: Final = 3600.0
_WAIT_MAX_S: Final = 60.0
_NUMBER_MAX: Final = 2**63 - 1
"""What goes to the engines has 64 bits."""


class EngineKnobs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits that can change while an engine runs; None is the value that it started with."""

    active_max: int | None = None
    """Requests that run at once. Lowering it drains: nothing that runs is preempted for it."""
    step_tokens_max: int | None = None
    """Tokens of one step, of prompts and answers together."""
    long_prefill_tokens_max: int | None = None
    """Tokens of one prompt in one step, while there are other requests; 0 is no such limit."""
    waiting_max: int | None = None
    """Requests that wait beyond `active_max`; further ones are refused (HTTP 503)."""


class Clamp(msgspec.Struct, frozen=True, kw_only=True):
    """A value that was not taken as it was asked for; `applied` is None where none was taken."""

    asked: int
    applied: int | None
    reason: str


class ControlRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /mileage/control. A knob that is not named keeps what was last asked for."""

    knobs: dict[str, int | None] = {}
    lease_s: float | None = 10.0
    """After this time without another request the start values come back; None: they do not."""
    policy: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET
    """The policy that is to run inside the engine; None ends it; left out: as it is."""
    wait_s: float = 0.0
    """The longest that the answer is held until every rank has taken the values."""


class RankState(msgspec.Struct, frozen=True, kw_only=True):
    """What one engine process (data-parallel rank) says of itself."""

    rank: int
    boot: str
    """Made anew with each start of the engine process: values asked for before are gone."""
    version: int
    writer: str
    """Of the server process whose request it took last: decides between two of one version."""
    applied_version: int
    """The last version that was in force at a step's start, or will be at the next one's."""
    applied: EngineKnobs
    requested: EngineKnobs
    start: EngineKnobs
    clamped: dict[str, Clamp]
    bounds: dict[str, tuple[int, int]]
    capabilities: dict[str, bool | str]
    lease_s: float | None
    lease_left_s: float | None
    reverted: bool
    steps_total: int
    running: int
    waiting: int
    step_tokens_seen_max: int | None
    """Most tokens of one step with the values in `applied`; None before the first."""
    prefill_tokens_step_max: int | None
    """The same of prompts only; None also where this vLLM does not tell them apart."""
    running_seen_max: int | None
    policy: dict[str, Any] | None = None
    graph_sizes: list[int] = []
    """Requests of each captured CUDA graph of a decode step, ascending."""
    prompt_block_tokens: int | None = None
    """Prompts are cut at whole blocks of so many tokens, and a step always has room for one beside
    those that decode; None: they are cut anywhere."""
    failed: str | None = None
    """Why the control inside the engine gave up: its start values are back, and stay."""


class ControlDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of GET and POST /mileage/control: `version` is of the last request that was taken,
    `applied_version` of the rank that is furthest behind."""

    engine: Literal["vllm"] = "vllm"
    engine_version: str
    plugin_version: str
    boot: str
    version: int
    applied_version: int
    requested: EngineKnobs
    applied: EngineKnobs
    start: EngineKnobs
    bounds: dict[str, tuple[int, int]]
    clamped: dict[str, Clamp]
    capabilities: dict[str, bool | str]
    lease_s: float | None
    lease_left_s: float | None
    reverted: bool
    ranks: list[RankState]
    policy: dict[str, Any] | None = None
    graph_sizes: list[int] = []
    prompt_block_tokens: int | None = None
    failed: str | None = None
    """Of the first rank whose control has failed."""


def decode_control_request(body: bytes) -> ControlRequest:
    """The request in a POST's body. Raises ConfigError naming the field that is wrong."""
    try:
        request = msgspec.json.decode(body or b"{}", type=ControlRequest)
    except msgspec.ValidationError as error:
        # "Expected `int | null`, got `str` - at `$.knobs[...]`"
        message, _, place = str(error).partition(" - at ")
        raise ConfigError(place.strip("`").removeprefix("$.") or "body", "", message) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigError("body", "", f"a JSON object ({error})") from None
    for name in request.knobs:
        if name not in KNOBS:
            raise ConfigError(f"knobs.{name}", request.knobs[name], f"one of {', '.join(KNOBS)}")
    for name, value in request.knobs.items():
        if value is not None and abs(value) > _NUMBER_MAX:
            told = f"{str(value)[:9]}... ({len(str(value))} digits)"
            raise ConfigError(f"knobs.{name}", told, "a number of 64 bits, or null")
    if request.lease_s is not None and not 0 < request.lease_s <= _LEASE_MAX_S:
        raise ConfigError("lease_s", request.lease_s, f"above 0, up to {_LEASE_MAX_S:g}, or null")
    if not 0 <= request.wait_s <= _WAIT_MAX_S:
        raise ConfigError("wait_s", request.wait_s, f"0..{_WAIT_MAX_S:g}")
    return request


def merge_knobs(requested: EngineKnobs, changes: Mapping[str, int | None]) -> EngineKnobs:
    """What is asked for after `changes`: those that it does not name stay."""
    return msgspec.structs.replace(requested, **changes)


def clamp(
    asked: EngineKnobs,
    bounds: Bounds,
    capabilities: Capabilities,
    graph_sizes: Sequence[int] = (),
) -> tuple[EngineKnobs, dict[str, Clamp]]:
    """The values to take, and what of those asked for was changed or refused, and why.

    `graph_sizes`: the requests of each captured CUDA graph, ascending; a step runs the next larger
    one, so a cap between two of them pays for rows that it does not use: it snaps to the lower.
    """
    taken: dict[str, int | None] = {}
    changed = {}
    for name in KNOBS:
        value = getattr(asked, name)
        if value is None:
            continue
        can = capabilities.get(name, "unknown to this engine")
        if can is not True:
            changed[name] = Clamp(asked=value, applied=None, reason=str(can))
            continue
        low, high = bounds[name]
        off = name == "long_prefill_tokens_max" and value <= 0
        applied = 0 if off else min(max(value, low), high)
        reason = f"out of {low}..{high}" if applied != value else ""
        if name == "active_max" and (snapped := _snap(applied, graph_sizes)) >= low:
            reason = f"snapped to a CUDA graph's {snapped}" if snapped != applied else reason
            applied = snapped
        taken[name] = applied
        if reason:
            changed[name] = Clamp(asked=value, applied=applied, reason=reason)
    return EngineKnobs(**taken), changed


def _snap(value: int, sizes: Sequence[int]) -> int:
    """The largest size up to the value; the value itself below the first and beyond the last."""
    index = bisect_right(sizes, value)
    return value if index == 0 or value > sizes[-1] else sizes[index - 1]
