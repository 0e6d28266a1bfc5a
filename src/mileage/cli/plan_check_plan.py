"""A pick of what `mileage plan --json` printed, for `mileage plan check` to compare with."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from mileage.core.errors import ConfigError
from mileage.core.slo import Slo
from mileage.planner.candidate import Candidate
from mileage.planner.goal import Goal

__all__ = ["PlannedSetup", "read_planned"]

_KEY: Final = "PLAN"
_FILE_BYTES_MAX: Final = 64 << 20


class PlannedSetup(msgspec.Struct, frozen=True, kw_only=True):
    """A pick, and what it was made for."""

    candidate: Candidate
    model: str
    engine: str
    goal: Goal
    trace: str | None
    """As `--trace` was spelled."""
    usd_per_gpu_hour: float | None
    """That the plan went by: its cost of a token over its GPU-hours of one."""


class _Trace(msgspec.Struct, frozen=True):
    name: str | None = None


class _Targets(msgspec.Struct, frozen=True):
    ttft_s: float | None = None
    itl_s: float | None = None
    gaps: str = "p99"
    attainment_ratio: float = 0.95
    drain_s: float = 300.0


class _Engine(msgspec.Struct, frozen=True):
    kind: str = "vllm"


class _Pick(msgspec.Struct, frozen=True):
    config: dict[str, Any]
    usd_per_mtok: float | None = None
    gpu_h_per_mtok: float | None = None
    engine: _Engine = _Engine()


class _Plan(msgspec.Struct, frozen=True):
    """What of the document is looked at; it has more."""

    model: str
    picks: dict[str, _Pick | None]
    trace: _Trace = _Trace()
    targets: _Targets = _Targets()


def read_planned(path: Path, pick: str) -> PlannedSetup:
    """That pick. Raises ConfigError for a file that is none, and for a pick that it has not."""
    expected = "a document of `mileage plan --json`"
    try:
        with path.open("rb") as file:
            plan = msgspec.json.decode(file.read(_FILE_BYTES_MAX), type=_Plan)
    except OSError as error:
        raise ConfigError(_KEY, str(path), f"{expected} ({error.strerror or error})") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(_KEY, str(path), f"{expected}: {error}") from None
    found = plan.picks.get(pick)
    if found is None:
        there = [name for name, each in plan.picks.items() if each is not None]
        raise ConfigError("--pick", pick, f"one of {', '.join(there) or 'none: it has no pick'}")
    try:
        candidate = msgspec.convert(found.config, Candidate)
        targets = plan.targets
        goal = Goal(
            slo=Slo(ttft_s=targets.ttft_s, itl_s=targets.itl_s),
            attainment_ratio=targets.attainment_ratio,
            gaps="mean" if targets.gaps == "mean" else "p99",
            drain_s=targets.drain_s,
        )
    except (msgspec.ValidationError, ConfigError) as error:
        raise ConfigError(_KEY, str(path), f"{expected} of this version: {error}") from None
    usd, hours = found.usd_per_mtok, found.gpu_h_per_mtok
    return PlannedSetup(
        candidate=candidate,
        model=plan.model,
        engine=found.engine.kind,
        goal=goal,
        trace=plan.trace.name,
        usd_per_gpu_hour=usd / hours if usd is not None and hours else None,
    )
