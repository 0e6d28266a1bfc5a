"""Binding: what keeps a set-up from doing more, or doing it for less, with figures to check."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from mileage.costmodel.roofline import RooflineReport, report
from mileage.planner.built import Built
from mileage.planner.figures import Figures
from mileage.planner.goal import Goal
from mileage.planner.traffic import Traffic

__all__ = ["Bind", "Binding", "Step", "binding"]

Limit = Literal["ttft", "itl", "kv_room", "load"]
_GB: Final = 1e9
_NO_WEIGHTS: Final = frozenset({"prefill attention", "decode attention", "small kernels"})
"""Operators that read other things."""


class Bind(msgspec.Struct, frozen=True, kw_only=True):
    """One limit, and how much of it is used."""

    limit: Limit
    """ttft, itl: a target; kv_room: memory for the KV cache; load: the work that there is at least,
    of the time that there is."""
    used_ratio: float
    """1: all of it."""
    text: str


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """The step that a replica computes as the trace goes, on average: all to be checked by hand."""

    requests: int
    context_tokens: int
    """Of each, half of its answer included."""
    step_s: float
    bound: str
    """compute, memory (its bandwidth), interconnect or host: what takes the most of it."""
    by_bound_s: dict[str, float]
    weight_gb: float
    """That one GPU reads: of a mixture the experts that such a step chooses."""
    weight_read_s: float
    """At the data sheet's bandwidth."""
    kv_gb: float
    """Of these requests' contexts, on one GPU."""
    kv_read_s: float
    bandwidth_utilisation_ratio: float
    compute_utilisation_ratio: float


class Binding(msgspec.Struct, frozen=True, kw_only=True):
    """All limits, the tightest first."""

    limits: tuple[Bind, ...]
    step: Step

    @property
    def first(self) -> Bind:
        """What gives out first."""
        return self.limits[0]

    @property
    def text(self) -> str:
        """One sentence about what binds."""
        first, step = self.first, self.step
        if first.limit != "load":
            return first.text
        return f"{first.text}; of a step {_share(step)} goes by {_BOUNDS[step.bound]}"


_BOUNDS: Final = {
    "compute": "compute",
    "memory": "memory bandwidth",
    "interconnect": "the links between GPUs",
    "host": "the host",
}


def binding(
    built: Built, figures: Figures, traffic: Traffic, goal: Goal, load_ratio: float
) -> Binding:
    """What binds a set-up that was simulated on that traffic. `load_ratio`: of `Bounds`."""
    limits = []
    quantile = f"p{goal.attainment_ratio * 100:g}"
    for name, limit, found_s, target_s in (
        ("TTFT", "ttft", figures.ttft_s, goal.slo.ttft_s),
        ("ITL", "itl", figures.itl_s, goal.slo.itl_s),
    ):
        if target_s is None:
            continue
        if found_s is None:
            used, told = 1.0, f"{name} has no {quantile}: too many are not answered"
        else:
            used = found_s / target_s
            told = f"{name} is {_time(found_s)} at {quantile}, of {_time(target_s)}"
        limits.append(Bind(limit=limit, used_ratio=used, text=told))  # type: ignore[arg-type]
    peak, most = figures.kv_peak_ratio, built.kv_tokens
    text = f"{peak:.0%} of {most:,} tokens of KV cache were in use at the fullest moment"
    if figures.preemptions:
        text += f", and {figures.preemptions:,} requests were preempted"
    limits.append(Bind(limit="kv_room", used_ratio=peak, text=text))
    text = (
        f"in the fullest steps its work would take {load_ratio:.0%} of the time "
        f"({figures.running_mean:.3g} requests run in a replica"
    )
    text += f", {figures.waiting_mean:.3g} wait)" if figures.waiting_mean >= 1.0 else ")"
    limits.append(Bind(limit="load", used_ratio=load_ratio, text=text))
    limits.sort(key=lambda each: -each.used_ratio)
    return Binding(limits=tuple(limits), step=_step(built, figures, traffic))


def _time(value_s: float) -> str:
    if value_s < 1.0:
        return f"{value_s * 1e3:.3g} ms"
    return f"{value_s:.3g} s" if value_s < 100.0 else f"{value_s:,.0f} s"


def _step(built: Built, figures: Figures, traffic: Traffic) -> Step:
    """While the engine was busy, not over all of the time."""
    columns, deployment = traffic.columns, built.deployment
    busy = max(figures.busy_ratio, 1e-9)
    requests = max(1, min(round(figures.running_mean / busy), built.engine.running_max))
    # Those that run are met the more often the longer they run.
    weights = columns.output_tokens / columns.output_tokens.sum()
    context = int((weights * (columns.prompt_tokens + columns.output_tokens / 2)).sum())
    found = report(deployment, batch=requests, context_tokens=context)
    per_s = deployment.gpu.bandwidth_gb_per_s * _GB
    token_bytes = deployment.kv_bytes_per_token * deployment.kv_rank_share
    kv_bytes = requests * context * token_bytes / deployment.pipeline_parallel
    kv_bytes /= deployment.data_parallel
    read = sum(each.bytes for each in found.operators if each.name not in _NO_WEIGHTS)
    return Step(
        requests=requests,
        context_tokens=context,
        step_s=found.step_s,
        bound=found.bound,
        by_bound_s=_by_bound(found),
        weight_gb=read / _GB,
        weight_read_s=read / per_s,
        kv_gb=kv_bytes / _GB,
        kv_read_s=kv_bytes / per_s,
        bandwidth_utilisation_ratio=found.bandwidth_utilisation_ratio,
        compute_utilisation_ratio=found.compute_utilisation_ratio,
    )


def _by_bound(found: RooflineReport) -> dict[str, float]:
    times: dict[str, float] = {}
    for operator in found.operators:
        times[operator.bound] = times.get(operator.bound, 0.0) + operator.time_s
    return times


def _share(step: Step) -> str:
    return f"{step.by_bound_s[step.bound] / step.step_s:.0%}"
