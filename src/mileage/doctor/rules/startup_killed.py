"""Rules of pods that are removed before they are ready."""

from __future__ import annotations

from mileage.doctor.case import Case
from mileage.doctor.check import Check, both, either
from mileage.doctor.evidence import Evidence
from mileage.doctor.interval import Interval, exactly
from mileage.doctor.opinion import Change, Opinion
from mileage.doctor.quantity import Quantity
from mileage.doctor.rule import Rule, rule
from mileage.doctor.start_phases import StartPhases

__all__ = ["RULES"]

KNOWN_DEADLINES_S = (30.0, 120.0, 300.0, 600.0)
"""Defaults that remove pods: a Kubernetes probe (3 failures x 10 s), Knative's progress deadline
(120 s in old releases, 600 s since), and five minutes, that many serving charts set."""

EARLY = 0.9
LATE = 1.15
GRACE_S = 40.0
"""A pod goes after the deadline: a probe period (10 s) and the grace of its end (30 s) later."""

LONG_START_S = 300.0
"""A start that few probes are set for: most charts give five minutes or less."""

CONSTANT = 1.15
"""Ages that differ by less are those of a timer; crashes come at any age."""

PROBE_FAILED = (
    r"failed startup probe|startup probe failed|failed liveness probe|liveness probe failed"
    r"|failed \w+ probe, will be restarted"
)
DEADLINE_PASSED = (
    r"ProgressDeadlineExceeded|Initial scale was never achieved|exceeded its progress deadline"
    r"|failed to (start|become ready|initialize) .{0,40}(within|in time)|startup timeout"
    r"|health check timed? ?out|did not become ready"
)
TO_ZERO = r"scaled? (down )?to (zero|0)\b|ScaledToZero|to 0 because|from \d+ to 0\b"


@rule(
    "START005",
    cause="startup_deadline",
    needs=(
        "pod_age_at_kill_s",
        "k8s.startup_deadline_s",
        "pod_kill_before_ready_count",
        "startup_total_s",
        "process_restarts_count",
        "logs",
    ),
    fires={
        "settings": {"k8s.startup_deadline_s": 240, "hpa.min_replicas": 1},
        "signals": {"pod_age_at_kill_s": 245, "pod_kill_before_ready_count": 6},
    },
    clear={
        "settings": {"k8s.startup_deadline_s": 900},
        "signals": {"startup_total_s": 130, "pod_kill_before_ready_count": 0},
    },
    silent={"settings": {"k8s.startup_deadline_s": 240}},
)
def start_misses_its_deadline(e: Evidence) -> Opinion:
    """A probe or progress deadline ends pods that are still starting.

    ## Why it costs money
    Each try loads the weights and is thrown away: cards are paid for and nothing is served.

    ## How it is told
    Pods go before they are ready, always at the same age: that of the deadline, or of a known
    default; or the start takes longer than the deadline. A scaler whose minimum is 0 does the same
    after its window: `scale_to_zero_kills_starting_pod`. Starts within the deadline clear it.

    ## What to do
    Set `startupProbe` so that `failureThreshold x periodSeconds` is twice the slowest start;
    Knative and KServe: annotation `serving.knative.dev/progress-deadline`; Deployment:
    `progressDeadlineSeconds`; then make the start shorter.

    ## Risk
    A longer deadline also waits longer for a start that really hangs, so a broken version blocks a
    rollout for that time: let an alert on the start's log phases tell earlier. Keep the liveness
    probe's own period short; only the startup probe should be patient.
    """
    case, start = Case(), StartPhases(e)
    age, deadline = e.number("pod_age_at_kill_s"), e.number("k8s.startup_deadline_s")
    killed = e.number("pod_kill_before_ready_count").above(0)
    again = either(killed, e.number("process_restarts_count").above(0))
    case.shows(_about(age, deadline), 4.0)
    case.shows(both(killed, age.above(0.0)), 2.2)
    case.shows(both(_constant(age), either(killed, _never_ready(e))), 3.0)
    case.shows(_not_sooner(start.total, deadline), 3.0)
    case.shows(_not_sooner(start.known, deadline), 3.0)
    case.shows(e.logged(DEADLINE_PASSED), 3.0)
    case.shows(both(e.logged(PROBE_FAILED), either(again, _never_ready(e))), 3.0)
    case.shows(both(e.logged(PROBE_FAILED), start.known.above(0.0)), 2.5)
    long = either(start.total.at_least(LONG_START_S), start.known.at_least(LONG_START_S))
    case.shows(both(again, _never_ready(e), long), 2.2)
    case.sign(_known_default(age), yes=0.8)
    case.sign(again, yes=0.5)
    case.refutes(e.number("pod_kill_before_ready_count").at_most(0))
    case.refutes(_in_time(start, deadline, killed))
    case.sign(_minimum(e, zero=True), yes=-2.0)
    case.sign(_minimum(e, zero=False), yes=1.0)
    case.sign(e.number("scale_to_zero_events_count").above(0), yes=-1.0)
    case.sign(e.number("oom_count").above(0), yes=-3.0)
    return case.opinion(
        "critical", advice=_deadline_advice(age, start), changes=_deadline_changes(age, start)
    )


def _about(age: Quantity, deadline: Quantity) -> Check:
    """Do pods go when the deadline has passed, and the grace after it?"""
    if not deadline.known:
        return Check(age.key, age.plain(), "about the deadline", None)
    words = f"about {deadline.key} ({deadline.value.shown()} s)"
    return age.where(words, lambda value: _near(value, deadline.value))


def _near(age: Interval, deadline: Interval) -> bool | None:
    """True where every age is within the deadline's reach; None where only some are."""
    early = deadline.times(exactly(EARLY))
    late = deadline.times(exactly(LATE)).plus(exactly(GRACE_S))
    if age.high < early.low or age.low > late.high:
        return False
    return True if age.low >= early.low and age.high <= late.high else None


def _known_default(age: Quantity) -> Check:
    def is_default(value: Interval) -> bool | None:
        answers = [_near(value, exactly(known)) for known in KNOWN_DEADLINES_S]
        if True in answers:
            return True
        return None if None in answers else False

    return age.where("about a known default", is_default)


def _constant(age: Quantity) -> Check:
    """Several pods, all of the same age."""
    if len(age.parts) < 2:
        return Check(age.key, age.plain(), "alike for several pods", None)
    alike = age.most.over(age.least).below(CONSTANT)
    return Check(age.key, age.plain(), "alike for several pods", alike)


def _never_ready(e: Evidence) -> Check:
    return e.number("replicas_ready").at_most(0)


def _in_time(start: StartPhases, deadline: Quantity, killed: Check) -> Check:
    """Is the start shorter than the deadline? Not asked where pods are killed all the same."""
    if killed.truth:
        return Check(start.total.key, None, "within the deadline", None)
    return deadline.exceeds(start.total)


def _minimum(e: Evidence, *, zero: bool) -> Check:
    """Is the least number of replicas 0 (or is it 1 or more)? KEDA's is that of idle times."""
    idle = e.number("keda.idle_replicas")
    always = e.number("hpa.min_replicas"), e.number("keda.min_replicas")
    asked: tuple[Quantity, ...] = (idle,) if idle.known else always
    if zero:
        return either(*(n.at_most(0) for n in asked))
    return either(*(n.at_least(1) for n in asked))


def _needed_s(age: Quantity, start: StartPhases) -> float | None:
    """Twice the slowest start that is known, in whole minutes; else twice the age."""
    known = [n.value.high for n in (start.total, start.known, age) if n.known]
    finite = [value for value in known if 0 < value < 1e7]
    return 60.0 * -(-2.0 * max(finite) // 60.0) if finite else None


def _deadline_advice(age: Quantity, start: StartPhases) -> str:
    needed = _needed_s(age, start)
    when = f" after {age.value.shown()} s" if age.known else ""
    to = f"{needed:g} s" if needed is not None else "twice the slowest start"
    return f"Pods are ended{when} while they still start: raise the deadline to {to}."


def _deadline_changes(age: Quantity, start: StartPhases) -> tuple[Change, ...]:
    needed = _needed_s(age, start)
    return (Change("k8s.startup_deadline_s", needed),) if needed is not None else ()


@rule(
    "START006",
    cause="scale_to_zero_kills_starting_pod",
    needs=(
        "pod_kill_before_ready_count",
        "pod_age_at_kill_s",
        "hpa.min_replicas",
        "keda.min_replicas",
        "keda.cooldown_s",
        "knative.scale_to_zero_window_s",
        "startup_total_s",
        "node_provision_s",
        "logs",
    ),
    fires={
        "settings": {
            "autoscaler.kind": "keda",
            "keda.min_replicas": 0,
            "keda.cooldown_s": 180,
        },
        "signals": {"startup_total_s": 420, "pod_kill_before_ready_count": 3},
    },
    clear={
        "settings": {"autoscaler.kind": "keda", "keda.min_replicas": 1, "keda.cooldown_s": 180},
        "signals": {"startup_total_s": 420, "pod_kill_before_ready_count": 0},
    },
    silent={"settings": {"keda.min_replicas": 0, "keda.cooldown_s": 180}},
)
def scaler_removes_what_still_starts(e: Evidence) -> Opinion:
    """The scaler sees no activity while a pod still starts, and scales it to zero.

    ## Why it costs money
    Each request wakes a machine that is taken away before it serves: cards are paid for, requests
    fail, and the next one begins anew.

    ## How it is told
    The minimum is 0, pods go before they are ready, and the start (or getting a machine) takes
    longer than the scaler's window or cooldown, or pods go at that age. With a minimum of 1 or
    more it is a deadline: `startup_deadline`.

    ## What to do
    Make the window longer than machine and model need together (KEDA `cooldownPeriod` and
    `initialCooldownPeriod`; Knative `scale-to-zero-pod-retention-period` and `stable-window`), keep
    one replica (`minReplicaCount: 1`, `autoscaling.knative.dev/min-scale: "1"`), or shorten the
    start.

    ## Risk
    A longer window, or one replica that stays, is paid for while nobody asks: compare it with the
    cost of a cold start for those who wait. Longer cool-downs delay every scale-down, not the first
    one alone.
    """
    case, start = Case(), StartPhases(e)
    age, killed = e.number("pod_age_at_kill_s"), e.number("pod_kill_before_ready_count").above(0)
    zero = either(_minimum(e, zero=True), e.logged(TO_ZERO), _zero_events(e))
    gone = either(killed, both(_zero_events(e), _never_ready(e)), e.logged(TO_ZERO))
    windows = tuple(e.number(key) for key in ("knative.scale_to_zero_window_s", "keda.cooldown_s"))
    provision = e.number("node_provision_s")
    for window in windows:
        late = either(
            _not_sooner(start.total, window),
            _not_sooner(start.known, window),
            _not_sooner(provision, window),
        )
        case.shows(both(gone, late), 3.5)
        case.shows(both(either(gone, age.above(0.0)), _about(age, window)), 3.5)
    case.shows(both(killed, zero), 2.8)
    scaled = e.is_one_of("autoscaler.kind", "knative", "keda", "kserve", "aibrix_kpa")
    unknown = Check("hpa.min_replicas", None, "not known", True if zero.truth is None else None)
    case.shows(both(killed, scaled, unknown), 2.1)
    case.sign(zero, yes=1.0)
    case.refutes(_minimum(e, zero=False))
    case.refutes(e.number("pod_kill_before_ready_count").at_most(0))
    case.sign(_about(age, e.number("k8s.startup_deadline_s")), yes=-2.0)
    return case.opinion("critical", advice=_zero_advice(e, start), changes=_zero_changes(e, start))


def _zero_events(e: Evidence) -> Check:
    return e.number("scale_to_zero_events_count").above(0)


def _not_sooner(took: Quantity, window: Quantity) -> Check:
    """Does it take the whole window or more?"""
    words = f">= {window.key} ({window.value.shown()})"
    if not window.known:
        return Check(took.key, took.plain(), words, None)
    return took.where(words, lambda value: _at_least(value, window.value))


def _at_least(value: Interval, limit: Interval) -> bool | None:
    if value.low >= limit.high:
        return True
    return False if value.high < limit.low else None


def _zero_advice(e: Evidence, start: StartPhases) -> str:
    longest = start.total.value if start.total.known else e.number("node_provision_s").value
    takes = f" ({longest.shown()} s)" if longest != Interval() else ""
    return (
        f"Make the scaler's window longer than machine and model need together{takes}, or keep one"
        " replica."
    )


def _zero_changes(e: Evidence, start: StartPhases) -> tuple[Change, ...]:
    needed = _needed_s(e.number("node_provision_s"), start)
    if needed is None:
        return ()
    for key in ("knative.scale_to_zero_window_s", "keda.cooldown_s"):
        if e.known(key):
            return (Change(key, needed),)
    return (Change("hpa.min_replicas", 1),)


RULES: tuple[Rule, ...] = (start_misses_its_deadline, scaler_removes_what_still_starts)
"""Rules of this family."""
