"""Rules of the metric that an autoscaler follows."""

from __future__ import annotations

from mileage.doctor.case import Case
from mileage.doctor.check import Check, both, either
from mileage.doctor.evidence import Evidence
from mileage.doctor.interval import Interval, exactly
from mileage.doctor.opinion import Change, Opinion
from mileage.doctor.rule import Rule, rule
from mileage.doctor.rules.setting_effect import effect_check, speeds

__all__ = ["RULES"]

TOLERANCE = 1.1
"""Kubernetes leaves the replicas alone while metric / target is within a tenth of 1."""

GPU_METRICS = (
    "gpu_util",
    "gpu-util",
    "gpu util",
    "sm_active",
    "sm_util",
    "gr_engine_active",
    "duty_cycle",
    "tensor_active",
    "dram_active",
    "utilization_gpu",
    "utilization.gpu",
    "fb_used",
    "gpu_mem",
    "gpu_memory",
)
"""Pieces of the names that exporters give to the card's busy time, and to memory that an engine
takes at start and keeps."""

RUNNING_METRICS = ("requests_running", "running_req", "batch_size", "batch_current_size")
SHARE_METRICS = ("kv_cache_usage", "cache_usage", "token_usage", "kv_usage")
WAITING_METRICS = ("requests_waiting", "queue_req", "waiting_req", "queue_size")

FLAT = 0.15
"""Spread of a series over its mean below which it does not follow anything."""

SLOWER = 0.95

FETCH_FAILED = (
    r"Failed(Get|Compute)\w*Metric|unable to (get|fetch) (external |custom |pod )?metric"
    r"|unable to compute the replica count|no metrics returned from|did not receive metrics for"
    r"|failed to get \w+ metric value|KEDAScalerFailed|error getting (scale )?metric"
    r"|failed to (scrape|fetch|query).{0,60}metric"
)
"""Events and logs of HPA, KEDA, the Knative and other pod autoscalers."""


@rule(
    "ASC001",
    cause="autoscale_on_gpu_util",
    needs=("hpa.metric", "gpu_util_ratio", "sm_active_ratio", "hpa_metric_value", "comparisons"),
    fires={
        "settings": {"hpa.metric": "DCGM_FI_DEV_GPU_UTIL", "hpa.target": 80},
        "topology": {"orchestrator": "kubernetes"},
        "signals": {"gpu_util_ratio": {"series": [{"value": 0.97}, {"value": 0.98}]}},
    },
    clear={"settings": {"hpa.metric": "requests_waiting"}},
    silent={"signals": {"gpu_util_ratio": {"series": [{"value": 0.97}, {"value": 0.98}]}}},
)
def scales_on_gpu_utilisation(e: Evidence) -> Opinion:
    """Replicas follow GPU utilisation, which does not follow load.

    ## Why it costs money
    Utilisation counts the time in which any kernel runs. One request keeps it near 100 %, and a
    hundred do no more: the scaler adds replicas that nobody needs and keeps them, or sees no
    difference when a queue builds up. Device memory is worse: an engine takes it once and for all.

    ## How it is told
    The scaler's metric is the card's busy time or memory, all the more if it stays high and flat
    while load moves. A metric of requests that cannot reach its target is
    `autoscale_metric_capped`.

    ## What to do
    Follow what grows with load: requests waiting, time in queue, or requests running for each
    replica at a target well below its cap.

    ## Risk
    A queue is noisier than utilisation: without a stabilisation window replicas come and go, and
    each start is minutes of paid idle time. A target near the cap reacts too late; a low one buys
    replicas that are not needed. Keep the maximum as it is for the first day.
    """
    case = Case()
    metric = _follows_gpu(e)
    case.must(metric)
    case.shows(metric, 2.5)
    pairs = speeds(e, "hpa.metric", lambda arm: _is_gpu(arm.get("hpa.metric")))
    case.shows(effect_check(pairs, SLOWER), 2.0)
    case.sign(
        either(_flat_and_high(e, "gpu_util_ratio"), _flat_and_high(e, "sm_active_ratio")),
        yes=1.3,
        no=-0.3,
    )
    case.sign(e.number("requests_waiting").any_above(0.5), yes=0.3)
    return case.opinion(changes=(Change("hpa.metric", "requests_waiting"),))


@rule(
    "ASC002",
    cause="autoscale_metric_capped",
    needs=(
        "hpa.metric",
        "hpa.target",
        "max_num_seqs",
        "requests_running_max",
        "requests_waiting",
        "scale_up_events_count",
        "hpa_metric_value",
    ),
    explains=("max_num_seqs_cap",),
    fires={
        "settings": {"hpa.metric": "requests_running", "hpa.target": 100, "max_num_seqs": 32},
        "signals": {"requests_waiting": 40, "scale_up_events_count": 0},
    },
    clear={
        "settings": {"hpa.metric": "requests_running", "hpa.target": 20, "max_num_seqs": 32},
    },
    silent={"settings": {"hpa.metric": "requests_running", "hpa.target": 100}},
)
def metric_cannot_reach_target(e: Evidence) -> Opinion:
    """The metric that is scaled on cannot exceed a bound that lies below its target.

    ## Why it costs money
    The queue grows without limit and no replica is added: users leave, and someone adds replicas
    by hand that then run day and night.

    ## How it is told
    Running requests never exceed the engine's slots, a share never exceeds 1, and a queue behind
    a proxy's cap never forms: with the target at that bound or above, value / target never
    leaves the autoscaler's tolerance of a tenth. Requests wait, and no scale-up comes. Replicas
    at their maximum are another matter.

    ## What to do
    Scale on requests that wait, or set the target to about 70 % of the bound.

    ## Risk
    A reachable target makes the autoscaler act at last: expect more replicas, and the bill that
    goes with them, at the next peak. Set `maxReplicas` before, and watch that it comes down again
    afterwards.
    """
    case = Case()
    ceiling, said = _ceiling(e)
    target = e.number("hpa.target")
    capped: bool | None = None
    if ceiling is not None and target.known:
        capped = target.value.at_least(ceiling.high / TOLERANCE)
        if ceiling.high > 0 and target.value.below(ceiling.low / TOLERANCE):
            capped = False
    unreachable = Check("hpa.target", target.plain(), f">= {said} / {TOLERANCE:g}", capped)
    waits = e.number("requests_waiting").any_above(0.5)
    no_scale_up = e.number("scale_up_events_count").at_most(0.0)
    case.shows(unreachable, 3.2)
    case.shows(both(_seen_below_target(e), waits, no_scale_up), 3.0)
    case.refutes(unreachable.negated())
    case.refutes(_value_reaches_target(e))
    case.refutes(_at_maximum(e))
    case.sign(waits, yes=1.0)
    case.sign(no_scale_up, yes=0.7, no=-2.0)
    case.sign(_follows_gpu(e), yes=-1.5)
    return case.opinion(advice=_ceiling_advice(e, ceiling), changes=_lower_target(ceiling))


@rule(
    "ASC003",
    cause="autoscaler_metric_fetch_fail",
    needs=("autoscaler_metric_errors_count", "replicas_ready", "replicas_current", "logs"),
    fires={
        "topology": {"orchestrator": "kubernetes"},
        "signals": {
            "autoscaler_metric_errors_count": 12,
            "replicas_current": 4,
            "replicas_ready": 3,
        },
    },
    clear={"signals": {"autoscaler_metric_errors_count": 0, "replicas_current": 4}},
    silent={"signals": {"replicas_current": 4, "replicas_ready": 3}},
)
def scaling_metric_is_missing(e: Evidence) -> Opinion:
    """The autoscaler cannot fetch its metric, so it neither converges nor scales down.

    ## Why it costs money
    With a metric missing for some pods the autoscaler assumes the careful value for them and
    removes nothing; with it missing for all it does nothing: replicas stay as they were at the
    peak.

    ## How it is told
    Fetches fail, in its events or counters, while pods are starting, stopping or without a
    metrics port.

    ## What to do
    Let only ready pods be asked, export the metric from the first second with 0, ask one place
    (Prometheus) instead of each pod, and define a fallback for the case that it fails (KEDA
    `fallback`).

    ## Risk
    A fallback count is used whenever Prometheus is away, also at night: choose it so that both the
    load and the bill bear it. A metric that is exported as 0 before the engine is ready can scale a
    starting service down, so pair it with readiness.
    """
    case = Case()
    errors = e.number("autoscaler_metric_errors_count")
    case.shows(errors.any_above(0.0), 3.2)
    case.shows(e.logged(FETCH_FAILED), 3.2)
    case.refutes(both(errors.all_below(1.0), _not_logged(e)))
    case.sign(e.number("replicas_current").exceeds(e.number("replicas_ready")), yes=0.7)
    case.sign(e.number("replicas_pending").any_above(0.0), yes=0.3)
    return case.opinion()


def _follows_gpu(e: Evidence) -> Check:
    return e.contains("hpa.metric", *GPU_METRICS).said("the card's busy time or memory")


def _is_gpu(metric: object) -> bool | None:
    if not isinstance(metric, str):
        return None
    return any(piece in metric for piece in GPU_METRICS)


def _flat_and_high(e: Evidence, key: str) -> Check:
    """Does the card's busy time stay high and say nothing?"""
    signal = e.number(key)
    truth: bool | None = None
    if signal.known:
        mean = signal.value
        truth = mean.at_least(0.8)
        if truth and signal.series:
            spread = signal.most.high - signal.least.low
            truth = spread <= FLAT * max(mean.low, 0.01)
    return Check(key, signal.plain(), "high and flat", truth)


def _ceiling(e: Evidence) -> tuple[Interval | None, str]:
    """What the metric cannot exceed in one replica, and what sets it; None where unknown."""
    metric = e.text("hpa.metric") or ""
    if any(piece in metric for piece in RUNNING_METRICS):
        caps = [
            e.number(key)
            for key in ("max_num_seqs", "proxy.max_parallel_requests", "client.max_connections")
        ]
        known = [cap for cap in caps if cap.known]
        if not known:
            return None, "max_num_seqs"
        least = min(known, key=lambda cap: cap.value.high)
        ranks = e.number("data_parallel_size")
        copies = ranks.value if ranks.known else exactly(1.0)
        return least.value.times(copies), f"{least.key} ({least.value.shown()})"
    value, target = e.number("hpa_metric_value"), e.number("hpa.target")
    if any(piece in metric for piece in SHARE_METRICS):
        in_percent = value.most.above(1.0)
        return (exactly(100.0), "100 %") if in_percent else (exactly(1.0), "1, the whole")
    if any(piece in metric for piece in GPU_METRICS) and "mem" not in metric:
        as_share = target.value.at_most(1.0) or value.value.at_most(1.0)
        return (exactly(1.0), "1, the whole") if as_share else (exactly(100.0), "100 %")
    cap, slots = e.number("proxy.max_parallel_requests"), e.number("max_num_seqs")
    all_run = cap.known and slots.known and slots.value.at_least(cap.value.high)
    if all_run and any(piece in metric for piece in WAITING_METRICS):
        return exactly(0.0), "no queue behind the proxy's cap, 0"
    return None, "its bound"


def _seen_below_target(e: Evidence) -> Check:
    """Is the highest value that was seen below the target?"""
    target, value = e.number("hpa.target"), e.number("hpa_metric_value")
    if not value.known and e.contains("hpa.metric", *RUNNING_METRICS).truth:
        value = e.number("requests_running_max")
        value = value if value.known else e.number("requests_running")
    truth = None
    if value.known and target.known:
        truth = target.value.times(exactly(TOLERANCE)).exceeds(value.most)
    return Check(value.key, value.plain(), f"< {TOLERANCE:g} x hpa.target", truth)


def _value_reaches_target(e: Evidence) -> Check:
    target, value = e.number("hpa.target"), e.number("hpa_metric_value")
    truth = None
    if value.known and target.known:
        truth = value.most.exceeds(target.value.times(exactly(TOLERANCE)))
    return Check(value.key, value.plain(), f"> {TOLERANCE:g} x hpa.target", truth)


def _at_maximum(e: Evidence) -> Check:
    most, current = e.number("hpa.max_replicas"), e.number("replicas_current")
    truth = current.least.at_least(most.value.high) if most.known and current.known else None
    return Check(current.key, current.plain(), ">= hpa.max_replicas", truth)


def _ceiling_advice(e: Evidence, ceiling: Interval | None) -> str:
    target = e.number("hpa.target")
    if ceiling is None or not ceiling.exact or not target.known:
        return ""
    return (
        f"{e.text('hpa.metric')} cannot exceed {ceiling.low:g}, and the target is "
        f"{target.value.shown()}: scale on requests that wait, or lower the target."
    )


def _lower_target(ceiling: Interval | None) -> tuple[Change, ...]:
    if ceiling is None or not ceiling.exact or ceiling.low <= 0:
        return (Change("hpa.metric", "requests_waiting"),)
    target = ceiling.low * 0.7
    return (Change("hpa.target", round(target, 2) if ceiling.low <= 1 else max(1, int(target))),)


def _not_logged(e: Evidence) -> Check:
    failed = e.logged(FETCH_FAILED)
    return Check("logs", failed.value, "say nothing of it", failed.truth is not True)


RULES: tuple[Rule, ...] = (
    scales_on_gpu_utilisation,
    metric_cannot_reach_target,
    scaling_metric_is_missing,
)
"""Rules of this family."""
