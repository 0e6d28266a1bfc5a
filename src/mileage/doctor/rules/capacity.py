"""Rules of capacity: paid for, and not used because nobody asks for anything."""

from __future__ import annotations

from mileage.doctor.case import Case
from mileage.doctor.check import Check, both, either
from mileage.doctor.evidence import Evidence
from mileage.doctor.interval import Interval, exactly
from mileage.doctor.opinion import Opinion
from mileage.doctor.rule import Rule, rule

__all__ = ["RULES"]

IDLE_RUNNING = 0.05
"""Mean requests in the running batch below which a replica is as good as idle."""

IDLE_POWER_RATIO = 0.4
"""Share of its power limit that an idle card stays below: cards draw 10 to 30 % doing nothing."""

LIGHT_ACTIVE = 0.33
"""Share of the time below which a third of the cards would do for the same work."""

REQUESTS_PER_CARD = 1.0
"""A card that runs one request reads all weights for one token: a batch of dozens costs as much."""


@rule(
    "CAP001",
    cause="idle_capacity",
    needs=("kind", "rate_rps", "requests_running", "requests_waiting", "gpu_util_ratio", "power_w"),
    fires={
        "workload": {"kind": "online", "rate_rps": 0},
        "signals": {"requests_running": 0, "requests_waiting": 0, "gpu_util_ratio": 0},
    },
    clear={
        "workload": {"kind": "online", "rate_rps": 4},
        "signals": {"requests_running": 12, "requests_waiting": 0, "gpu_util_ratio": 0.9},
    },
    silent={"signals": {"gpu_util_ratio": 0}},
)
def no_traffic(e: Evidence) -> Opinion:
    """GPUs are paid for while no, or almost no, request arrives.

    ## Why it costs money
    A GPU costs the same per hour whether it works or not. This is not a fault of the engine: it
    is named so that nobody looks for one.

    ## How it is told
    Nothing runs and nothing waits, no arrivals are seen or expected, and the card draws idle
    power. A card that is busy while nothing runs is another matter (`idle_busy_spin`), and so is
    a pool that refuses or loses requests.

    ## What to do
    Scale to fewer replicas, or to none, in the hours without traffic; share the card with another
    model; or send batch work there.

    ## Risk
    Scaled to few or none, the first requests after a pause wait for a start of minutes, and freed
    cards may be gone when you want them back (capacity in clouds is not guaranteed). Another tenant
    on the card can disturb the rare requests: give it the lower priority.
    """
    case = Case()
    running, waiting = e.number("requests_running"), e.number("requests_waiting")
    arriving = either(
        e.number("rate_rps").at_most(0.0),
        e.number("requests_per_s_arriving").at_most(0.0),
        e.is_one_of("kind", "none"),
    )
    case.shows(both(running.at_most(IDLE_RUNNING), waiting.at_most(0.0), arriving), 4.0)
    case.shows(both(running.at_most(IDLE_RUNNING), waiting.at_most(0.0), _quiet(e)), 3.0)
    case.refutes(running.above(IDLE_RUNNING))
    case.refutes(waiting.above(0.0))
    case.refutes(e.number("gpu_util_ratio").any_above(0.5))
    case.sign(arriving, yes=1.0, no=-3.0)
    return case.opinion("info", waste_ratio=Interval(0.9, 1.0))


def _quiet(e: Evidence) -> Check:
    power, limit = e.number("power_w"), e.number("power_limit_w")
    return either(
        e.number("gpu_util_ratio").at_most(0.01),
        e.number("output_tokens_per_s").at_most(0.0),
        power.where(
            f"< {IDLE_POWER_RATIO:g} x power_limit_w",
            lambda drawn: drawn.over(limit.value).below(IDLE_POWER_RATIO) if limit.known else None,
        ),
    )


@rule(
    "CAP002",
    cause="idle_capacity",
    needs=("sm_active_ratio", "requests_running", "requests_waiting", "hardware.count"),
    fires={
        "hardware": {"gpu": "H100", "count": 4},
        "workload": {"kind": "online"},
        "signals": {"sm_active_ratio": 0.12, "requests_running": 1.4, "requests_waiting": 0},
    },
    clear={
        "hardware": {"gpu": "H100", "count": 4},
        "signals": {"sm_active_ratio": 0.8, "requests_running": 40, "requests_waiting": 0},
    },
    silent={"hardware": {"count": 4}, "signals": {"sm_active_ratio": 0.12}},
)
def more_cards_than_load(e: Evidence) -> Opinion:
    """The cards have several times the capacity that the traffic needs.

    ## Why it costs money
    All cards are paid for, and their multiprocessors have work for a small part of the time, with
    a request or two in the batch. Nothing is wrong with the engine: too little comes.

    ## How it is told
    Multiprocessors are active less than a third of the time, hardly a request runs for each card,
    nothing waits, and nothing says that clients wanted more in flight. With many requests running
    and cards idle the cause is elsewhere, such as `engine_host_bound`.

    ## What to do
    Serve from fewer cards or a smaller one (where the weights fit), share cards between models, or
    put batch work beside the users' traffic.

    ## Risk
    With fewer cards the reserve for peaks and for a lost replica is gone: keep as many as the
    busiest hour needs, and one. Smaller cards have less bandwidth as well, so a single stream
    becomes slower; batch work beside users needs a lower priority.
    """
    case = Case()
    running, active = e.number("requests_running"), e.number("sm_active_ratio")
    case.must(e.number("requests_waiting").at_most(0.0))
    case.must(_few_per_card(e))
    case.must(running.above(IDLE_RUNNING), yes=0.0)
    case.shows(active.all_below(LIGHT_ACTIVE), 3.0)
    case.refutes(e.number("concurrency").exceeds(running, factor=2.0))
    case.refutes(e.is_one_of("kind", "benchmark", "eval", "offline"))
    case.refutes(e.number("client_process_cpu_ratio").at_least(0.85))
    idle = Interval(0.0, max(0.0, 1.0 - active.value.low)) if active.known else None
    return case.opinion("info", waste_ratio=idle)


def _few_per_card(e: Evidence) -> Check:
    """Does hardly one request run for each card?"""
    running, cards = e.number("requests_running"), e.gpu_count
    each = exactly(REQUESTS_PER_CARD)
    truth = None
    if running.known and cards.known:
        exceeds = running.total.exceeds(cards.total.times(each))
        truth = None if exceeds is None else not exceeds
    limit = f"<= {REQUESTS_PER_CARD:g} for each card"
    return Check(running.key, running.plain(), limit, truth)


RULES: tuple[Rule, ...] = (no_traffic, more_cards_than_load)
"""Rules of this family."""
