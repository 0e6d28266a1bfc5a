"""Rules of scaling down: replicas that outlive their load."""

from __future__ import annotations

from math import inf

from mileage.doctor.case import Case
from mileage.doctor.check import Check, both, either
from mileage.doctor.evidence import Evidence
from mileage.doctor.interval import Interval, exactly
from mileage.doctor.opinion import Change, Opinion
from mileage.doctor.rule import Rule, rule

__all__ = ["RULES"]

WINDOW_DEFAULTS_S = {
    "keda.cooldown_s": (("keda",), 300.0),
    "hpa.scale_down_stabilization_s": (("keda", "hpa"), 300.0),
    "knative.scale_to_zero_window_s": (("knative", "kpa"), 90.0),
}
"""KEDA's cooldown and the HPA's window are 300 s if not set; Knative's 60 s window and 30 s of
grace."""

WINDOW_FIT = Interval(0.85, 1.25)
"""Delay over the window that causes it: windows overlap, and "idle" is seen late or early."""

SLACK_S = 60.0
"""Polling of triggers (30 s), the controller's period (15 s) and the end of a pod come on top."""

DELAY_MIN_S = 150.0
"""Half of an HPA's default window: who lets replicas go sooner than that would make them flap."""

LONG_S = 1800.0
"""Half an hour without traffic: longer than any default keeps a replica."""

ZERO = 0.0


@rule(
    "ASC005",
    cause="autoscaler_scale_down_delay",
    needs=(
        "scale_down_after_idle_s",
        "keda.cooldown_s",
        "hpa.scale_down_stabilization_s",
        "knative.scale_to_zero_window_s",
        "replicas_current",
        "replicas_desired",
        "startup_total_s",
        "comparisons",
    ),
    fires={
        "settings": {
            "autoscaler.kind": "keda",
            "keda.cooldown_s": 900,
            "hpa.scale_down_stabilization_s": 600,
        },
        "signals": {"scale_down_after_idle_s": 1520, "startup_total_s": 60},
    },
    clear={
        "settings": {"autoscaler.kind": "hpa", "hpa.scale_down_stabilization_s": 60},
        "signals": {"scale_down_after_idle_s": 75, "startup_total_s": 60},
    },
    silent={"settings": {"autoscaler.kind": "keda", "keda.cooldown_s": 900}},
)
def replicas_outlive_their_load(e: Evidence) -> Opinion:
    """Delay windows keep paid replicas long after the load is gone.

    ## Why it costs money
    Every peak is followed by minutes of GPUs that nobody uses. KEDA's cooldown and the HPA's
    stabilisation window come one after the other: their delays add up.

    ## How it is told
    The time from the last traffic to the smaller fleet is about one window, or the sum of them;
    or more replicas exist than are asked for with nothing to do; or they stay for half an hour and
    far longer than the windows explain. A delay shorter than a replica takes to start is money
    well spent. A metric that cannot be fetched also keeps replicas
    (`autoscaler_metric_fetch_fail`).

    ## What to do
    Set each window to about the time that a replica takes to start; shorten the start (warm
    weights, compile cache) and then the windows; keep only one of the two.

    ## Risk
    Shorter windows turn each short lull into a scale-down and a cold start after it: below the time
    of a start they cost more than they save. Requests that run when a replica goes are cut off
    unless it drains, so check `terminationGracePeriodSeconds` against the longest answer.
    """
    case = Case()
    delay = e.number("scale_down_after_idle_s")
    current, desired = e.number("replicas_current"), e.number("replicas_desired")
    surplus = current.exceeds(desired)
    long = delay.at_least(DELAY_MIN_S)
    case.shows(both(long, _explained_by_windows(e)), 3.5)
    case.shows(
        both(long, delay.where("> 3 x startup_total_s", lambda _: _above_start(e, 3.0))), 2.6
    )
    case.shows(both(delay.at_least(LONG_S), _beyond_windows(e)), 2.3)
    case.shows(both(surplus, _no_load(e)), 3.0)
    case.shows(both(surplus, _a_window_is_known(e)), 2.4)
    case.shows(_stay_after_load(e), 3.0)
    case.shows(_shorter_window_helps(e), 3.5)
    case.refutes(delay.below(DELAY_MIN_S))
    case.refutes(delay.where("< startup_total_s", lambda _: _below_start(e)))
    case.sign(e.number("autoscaler_metric_errors_count").any_above(0.0), yes=-2.5)
    case.sign(e.number("requests_waiting").any_above(0.5), yes=-2.0)
    # While requests run, a replica too many is one that is drained.
    case.sign(e.number("requests_running").any_above(0.5), yes=-1.5)
    return case.opinion(advice=_window_advice(e), changes=_shorter_windows(e))


def _windows(e: Evidence) -> list[Interval]:
    """Delay windows that are set, or that the autoscaler's defaults give."""
    kind = e.text("autoscaler.kind") or ""
    found = []
    for key, (kinds, default) in WINDOW_DEFAULTS_S.items():
        stated = e.number(key)
        if stated.known:
            found.append(stated.value)
        elif any(word in kind for word in kinds):
            found.append(exactly(default))
    return found


def _a_window_is_known(e: Evidence) -> Check:
    stated = next((key for key in WINDOW_DEFAULTS_S if e.known(key)), None)
    shown = None if stated is None else e.number(stated).plain()
    return Check(stated or "keda.cooldown_s", shown, "a delay window", True if stated else None)


def _explained_by_windows(e: Evidence) -> Check:
    """Is the delay about one of the windows, or about their sum?"""
    delay, windows = e.number("scale_down_after_idle_s"), _windows(e)
    truth: bool | None = None
    total = _sum(windows)
    if delay.known and total is not None:
        fits = [_fits(delay.value, window) for window in {*windows, total}]
        truth = True if True in fits else (None if None in fits else False)
    shown = " or ".join(window.shown() for window in windows)
    return Check(delay.key, delay.plain(), f"about {shown or 'the windows'} or their sum", truth)


def _beyond_windows(e: Evidence) -> Check:
    """Do replicas stay for far longer than all the windows together explain?"""
    delay, windows = e.number("scale_down_after_idle_s"), _windows(e)
    total = _sum(windows)
    truth: bool | None = None
    if delay.known and total is not None:
        truth = delay.value.above(total.high * WINDOW_FIT.high + SLACK_S)
    shown = total.shown() if total is not None else "the windows"
    return Check(delay.key, delay.plain(), f"far above {shown}", truth)


def _sum(windows: list[Interval]) -> Interval | None:
    total: Interval | None = None
    for window in windows:
        total = window if total is None else total.plus(window)
    return total


def _fits(delay: Interval, window: Interval) -> bool | None:
    low, high = window.low * WINDOW_FIT.low, window.high * WINDOW_FIT.high + SLACK_S
    if delay.low >= low and (delay.high <= high or (delay.high == inf and delay.low <= high)):
        return True
    return False if delay.high < low or delay.low > high else None


def _start_s(e: Evidence) -> Interval | None:
    start, node = e.number("startup_total_s"), e.number("node_provision_s")
    if not start.known:
        return None
    return start.value.plus(node.value) if node.known else start.value


def _above_start(e: Evidence, factor: float) -> bool | None:
    start = _start_s(e)
    if start is None:
        return None
    return e.number("scale_down_after_idle_s").value.exceeds(start.times(exactly(factor)))


def _below_start(e: Evidence) -> bool | None:
    start = _start_s(e)
    return None if start is None else start.exceeds(e.number("scale_down_after_idle_s").value)


def _no_load(e: Evidence) -> Check:
    """Does nothing run and nothing come?"""
    return either(
        e.number("rate_rps").at_most(ZERO),
        e.number("requests_per_s_arriving").at_most(ZERO),
        both(
            e.number("requests_running").at_most(0.05), e.number("requests_waiting").at_most(ZERO)
        ),
    )


def _stay_after_load(e: Evidence) -> Check:
    """Series: load goes to nothing, and the replicas stay to the end."""
    replicas = e.number("replicas_current").series
    truth: bool | None = None
    for key in ("requests_per_s_arriving", "requests_running"):
        load = e.number(key).series
        if len(load) < 3 or len(replicas) < 3:
            continue
        gone = load[-1].at_most(0.05) and load[-2].at_most(0.05) and max(p.low for p in load) > 0.5
        kept = replicas[-1].low >= max(part.low for part in replicas) and replicas[-1].low > 1
        truth = bool(gone and kept)
    return Check("replicas_current", None, "as many as at the peak, without load", truth)


def _shorter_window_helps(e: Evidence) -> Check:
    """Arms that differ in a window: with the longer one replicas stay longer."""
    truth: bool | None = None
    for comparison in e.comparisons:
        if not comparison.varies_only(*WINDOW_DEFAULTS_S):
            continue
        for one, other in comparison.pairs():
            ratio = comparison.ratio("scale_down_after_idle_s", one, other)
            apart = either(ratio.at_least(1.3), ratio.at_most(1 / 1.3)).truth
            truth = True if apart or truth else apart
    return Check("comparisons", None, "the delay follows the window", truth)


def _shorter_windows(e: Evidence) -> tuple[Change, ...]:
    start = _start_s(e)
    if start is None or not start.bounded or _beyond_windows(e).truth:
        return ()
    wanted = max(60, int(start.high))
    return tuple(
        Change(key, wanted)
        for key in WINDOW_DEFAULTS_S
        if e.known(key) and e.number(key).value.above(wanted)
    )


def _window_advice(e: Evidence) -> str:
    delay, start = e.number("scale_down_after_idle_s"), _start_s(e)
    if not delay.known:
        return ""
    kept = f"Replicas stay {delay.value.shown()} s after the last traffic"
    total = _sum(_windows(e))
    if total is not None and _beyond_windows(e).truth:
        return (
            f"{kept}, and the windows explain {total.shown()} s of it: look at what else keeps"
            " them, such as the span that the trigger's query looks back over, a metric that is"
            " not told or does not fall to 0, or pods that may not be evicted."
        )
    if start is None:
        return f"{kept}: shorten the windows to about the time a replica takes to start."
    return f"{kept} and start in {start.shown()} s: shorten the windows to about the latter."


RULES: tuple[Rule, ...] = (replicas_outlive_their_load,)
"""Rules of this family."""
