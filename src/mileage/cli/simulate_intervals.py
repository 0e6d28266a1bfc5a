"""How far off simulated latencies may be: the step-time model's own 80 % intervals."""

from __future__ import annotations

from typing import Final

import msgspec

from mileage.cli.simulate_fleet import Fleet
from mileage.cli.simulate_format import seconds
from mileage.cli.simulate_run import ArmRun
from mileage.costmodel.efficiency_table import FITTED, TPOT_INTERVAL, TTFT_INTERVAL
from mileage.sim.engine_config import EngineConfig
from mileage.sim.sim_result import SimResult

__all__ = ["Intervals", "interval_lines", "intervals_of"]

_UNMEASURED: Final = ("speculation", "disaggregation", "static_batch", "kv_layout", "adapters")
"""Features that no measured system had which the model was judged on."""
_QUEUE_MAX: Final = 1.0
_NOTE: Final = "four of five measured systems were within"

Span = tuple[float, float]


class Intervals(msgspec.Struct, frozen=True, kw_only=True):
    """In which four of five measured values were, about what the step-time model predicted.

    They are of sources that it was not fitted to. They tell how far off its step times may be,
    not how far off a trace's load or a policy is: arms that are compared share the same error.
    """

    level_ratio: float = 0.8
    tpot_ratio: Span
    """Multiples of the predicted mean gap between a request's tokens."""
    ttft_ratio: Span | None
    """Multiples of the predicted time to first token; None where requests queue: it was judged
    without queues, which grow faster than step times."""
    client_s: float
    """What a first token took besides steps in those measurements: HTTP, tokeniser, first event.
    Simulated times are without it."""
    tpot_p50_s: Span | None
    """Of the median request's mean gap."""
    ttft_p50_s: Span | None
    """Of the median time to first token, `client_s` included."""


def intervals_of(run: ArmRun) -> Intervals | None:
    """Of what was simulated; None where the step times are not the model's own, or the engine has
    a feature that nothing was measured of."""
    fleet, summary = run.arm.fleet, run.summary
    own = fleet.fitted is None and fleet.calibration is None
    if not own or _is_unmeasured(fleet):
        return None
    ttft = None if _queues(run.result, fleet) else TTFT_INTERVAL
    first_s = None if (t := summary.ttft_s) is None else t.p50 + FITTED.ttft_s
    return Intervals(
        client_s=FITTED.ttft_s,
        tpot_ratio=TPOT_INTERVAL,
        ttft_ratio=ttft,
        tpot_p50_s=_times(TPOT_INTERVAL, None if (m := summary.itl_mean_s) is None else m.p50),
        ttft_p50_s=_times(ttft, first_s),
    )


def interval_lines(run: ArmRun) -> list[str]:
    """For people, what is known of them; empty where nothing is."""
    found = intervals_of(run)
    if found is None:
        return []
    told = [
        f"{name} {seconds(span[0])} to {seconds(span[1])}"
        for name, span in (
            ("median TTFT at a client", found.ttft_p50_s),
            ("median mean gap", found.tpot_p50_s),
        )
        if span is not None
    ]
    if not told:
        return []
    queue = "" if found.ttft_ratio is not None else "; none of TTFT where requests queue"
    return [f"{', '.join(told)}: {_NOTE}{queue}"]


def _is_unmeasured(fleet: Fleet) -> bool:
    default = {field.name: field.default for field in msgspec.structs.fields(EngineConfig)}
    return fleet.sharing.replicas > 1 or any(
        getattr(fleet.engine, key) != default[key] for key in _UNMEASURED
    )


def _queues(result: SimResult, fleet: Fleet) -> bool:
    """Whether more than one request per replica waits in the mean, in the engines or before."""
    waiting = result.series.mean("waiting") or 0.0
    held = result.series.mean("held") or 0.0
    return waiting + held > _QUEUE_MAX * fleet.replicas


def _times(span: Span | None, value_s: float | None) -> Span | None:
    return None if span is None or value_s is None else (span[0] * value_s, span[1] * value_s)
