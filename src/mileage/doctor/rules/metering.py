"""Rules of what is metered, and whether it is what was meant."""

from __future__ import annotations

import re

from mileage.doctor.case import Case
from mileage.doctor.check import Check, both, either
from mileage.doctor.evidence import Evidence
from mileage.doctor.interval import Interval, exactly
from mileage.doctor.opinion import Opinion
from mileage.doctor.quantity import Quantity
from mileage.doctor.rule import Rule, rule
from mileage.doctor.rules.host_load import gpu_idle

__all__ = ["RULES"]

LOST_MIN = 0.95
"""Recorded over computed cost below which money is missing: rounding of single calls and calls in
flight at the window's edges make hundredths."""

SAME = Interval(0.95, 1.05)
"""Two costs that are alike: usage that truly follows the load differs by far more."""

SHARE_EXCESS = 1.05
"""Billed over requested share from which it is no rounding."""

USAGE_LOW = 0.8
"""Usage over allocation below which the two would give other bills."""

UNPRICED_LOGGED = (
    r"model isn'?t mapped yet|not (found )?in (the )?(model )?(cost|price) map|"
    r"no (price|pricing|cost) (is )?(found|defined|known) for"
)
"""What proxies write of a model that their price map lacks."""

UNSTORED_LOGGED = r"cost tracking failed|error (in )?updating spend|failed to (update|write).*spend"
SHARED = ("time_slicing", "mps", "hami", "mig")
"""Ways of sharing one card between pods."""


@rule(
    "COST001",
    cause="price_map_miss",
    needs=(
        "tokens_count",
        "calls_count",
        "cost_computed_usd",
        "metering.custom_price_set",
        "metering.provider_prefix",
        "logs",
    ),
    fires={
        "settings": {"metering.tool": "litellm", "metering.custom_price_set": False},
        "signals": {"tokens_count": 5200000, "cost_computed_usd": 0},
    },
    clear={"signals": {"tokens_count": 5200000, "cost_computed_usd": 41.5}},
    silent={"signals": {"tokens_count": 5200000}},
)
def model_has_no_price(e: Evidence) -> Opinion:
    """The model's name has no price, so that its cost is worked out as 0.

    ## Why it costs money
    Tokens are counted and nobody is charged; budgets never stop a key, and the cheapest-looking
    model is the one without a price.

    ## How it is told
    Tokens or calls are metered and their computed cost is 0, with no price of one's own and
    often without the provider in the model's name. Where the cost is computed and then not
    stored it is `cost_not_persisted`.

    ## What to do
    Give the model a price (LiteLLM: `input_cost_per_token` and `output_cost_per_token` under
    `model_info`), or send the name with its provider (`hosted_vllm/...`, `openai/...`) so that
    it is found. Recompute the calls since: the tokens are on record.

    ## Risk
    A price, and its backfill, spends budgets at once and may block tenants: announce it. A name
    with a provider prefix can route to another deployment.
    """
    case = Case()
    metered = either(e.number("tokens_count").above(0.0), e.number("calls_count").above(0.0))
    computed, recorded = e.number("cost_computed_usd"), e.number("cost_recorded_usd")
    bare = either(e.is_one_of("metering.provider_prefix", ""), e.is_unset(PREFIX))
    no_price = e.is_false("metering.custom_price_set")
    free = computed.at_most(0.0)
    case.shows(both(metered, free), 4.0)
    case.shows(both(either(metered, free), e.logged(UNPRICED_LOGGED)), 3.5)
    case.shows(both(free, either(bare, no_price)), 3.0)
    if not computed.known:
        case.shows(both(metered, recorded.at_most(0.0), either(bare, no_price)), 2.8)
    case.shows(_priced_in_one_arm(e), 4.0)
    case.sign(bare, yes=1.0)
    case.sign(no_price, yes=0.5)
    if e.logged(UNPRICED_LOGGED).truth is not True and not _priced_in_one_arm(e).truth:
        case.refutes(e.is_true("metering.custom_price_set"))
    case.sign(e.number("cost_recorded_nonstream_ratio").above(0.0), yes=-2.0)
    case.refutes(computed.above(0.0))
    case.refutes(recorded.above(0.0))
    case.refutes(_nothing_metered(e))
    return case.opinion("critical", advice="Give the model a price, or its provider's prefix.")


PREFIX = "metering.provider_prefix"
"""Key of the provider part of the model's name."""


def _priced_in_one_arm(e: Evidence) -> Check:
    """Does the name with its provider, or a price of one's own, turn a cost of 0 into one?"""
    for comparison in e.comparisons:
        if comparison.varied() & {PREFIX, "metering.custom_price_set", "model.name"}:
            costs = [arm.number("cost_computed_usd") for arm in comparison.arms]
            zero = either(*(cost.at_most(0.0) for cost in costs))
            return both(zero, either(*(cost.above(0.0) for cost in costs)))
    return Check("comparisons", None, "0 in one arm only", None)


def _nothing_metered(e: Evidence) -> Check:
    tokens, calls = e.number("tokens_count"), e.number("calls_count")
    if tokens.known:
        return tokens.at_most(0.0)
    return calls.at_most(0.0)


@rule(
    "COST002",
    cause="cost_not_persisted",
    needs=("cost_computed_usd", "cost_recorded_usd", "cost_recorded_nonstream_ratio", "stream"),
    fires={
        "settings": {"metering.tool": "litellm"},
        "workload": {"stream": True},
        "signals": {"cost_computed_usd": 12.7, "cost_recorded_usd": 0},
    },
    clear={"signals": {"cost_computed_usd": 12.7, "cost_recorded_usd": 12.69}},
    silent={"signals": {"cost_computed_usd": 12.7}},
)
def cost_is_not_stored(e: Evidence) -> Opinion:
    """The cost of a call is worked out correctly and stored as 0.

    ## Why it costs money
    What is not in the spend store is not charged, and no budget counts it. The answers look
    right, so that nobody notices before the bill of the provider, or of the cluster, comes.

    ## How it is told
    The computed cost is above 0 and the recorded one is 0, or far below it: for streamed calls
    only, or only for models with prices of one's own. Where the computed cost is 0 as well it is
    `price_map_miss`.

    ## What to do
    Upgrade the proxy; take the cost from its per-call log (`cost_breakdown`, response header)
    until then; compare both sums daily. Ask for usage in streams
    (`stream_options.include_usage`). Backfill the spend store from the log.

    ## Risk
    An upgrade of the proxy migrates its database, which older versions may not read again: back it
    up. A backfill run twice counts twice: sum by call id.
    """
    case = Case()
    computed, recorded = e.number("cost_computed_usd"), e.number("cost_recorded_usd")
    nothing, worth = recorded.at_most(0.0), computed.above(0.0)
    plain = e.number("cost_recorded_nonstream_ratio").at_least(LOST_MIN)
    metered = either(e.number("tokens_count").above(0.0), e.number("calls_count").above(0.0))
    streamed = e.is_true("stream")
    case.shows(both(worth, nothing), 4.5)
    case.shows(both(worth, _partly_lost(computed, recorded)), 3.5)
    case.shows(both(nothing, plain), 3.5)
    if not computed.known:
        priced = e.is_true("metering.custom_price_set")
        case.shows(both(nothing, metered, priced), 2.8)
        case.shows(both(nothing, e.logged(UNSTORED_LOGGED)), 3.0)
    case.shows(_stream_arms(e), 3.5)
    case.sign(both(plain, streamed), yes=0.5)
    case.refutes(computed.at_most(0.0))
    if computed.known and recorded.known:
        case.refutes(both(recorded.above(0.0), _partly_lost(computed, recorded).negated()))
    return case.opinion(
        "critical",
        advice=f"{computed.value.shown()} USD were worked out and {recorded.value.shown()} stored."
        " Upgrade the proxy and backfill from its per-call log.",
    )


def _partly_lost(computed: Quantity, recorded: Quantity) -> Check:
    truth = None
    if computed.known and recorded.known and computed.total.low > 0:
        truth = recorded.total.over(computed.total).below(LOST_MIN)
    return Check(recorded.key, recorded.plain(), f"< {LOST_MIN:g} x cost_computed_usd", truth)


def _stream_arms(e: Evidence) -> Check:
    """Is nothing recorded for streamed calls, and something for the others?"""
    for comparison in e.comparisons:
        recorded = {arm.get("stream"): arm.number("cost_recorded_usd") for arm in comparison.arms}
        with_stream, without = recorded.get(True), recorded.get(False)
        if with_stream is not None and without is not None:
            return both(with_stream.at_most(0.0), without.above(0.0))
    return Check("comparisons", None, "streamed calls recorded as 0", None)


@rule(
    "COST003",
    cause="cost_basis_allocation_not_usage",
    needs=(
        "metering.cost_basis",
        "gpu_hours_billed_over_requested_ratio",
        "cost_usage_over_allocation_ratio",
    ),
    fires={
        "settings": {"metering.cost_basis": "usage", "metering.tool": "opencost"},
        "signals": {"cost_usage_over_allocation_ratio": 1.0, "gpu_util_ratio": 0.3},
    },
    clear={
        "settings": {"metering.cost_basis": "usage"},
        "signals": {"cost_usage_over_allocation_ratio": 0.4},
    },
    silent={"settings": {"metering.cost_basis": "usage"}},
)
def usage_report_shows_allocation(e: Evidence) -> Opinion:
    """A report that claims to charge by usage charges what was allocated.

    ## Why it costs money
    A tenant who uses a tenth of a card pays for all of it and learns nothing from the report;
    nobody sees which cards are idle.

    ## How it is told
    The basis is said to be usage, and yet billed GPU hours equal requested ones, or the cost
    under both bases is the same while the cards were not full. A report that says it goes by
    allocation does what it says (`metering_too_coarse` where that is not enough).

    ## What to do
    Feed GPU usage to the meter: DCGM's profiling metrics per pod (OpenCost: the DCGM exporter
    and its usage metrics), or charge by tokens and GPU time from the gateway's own ledger.

    ## Risk
    Bills change: those who reserved much and used little pay less, and somebody else pays for the
    idle time. DCGM's profiling counters cannot be read beside another profiler.
    """
    case = Case()
    claims = e.is_one_of("metering.cost_basis", "usage")
    both_bases, hours = (
        e.number("cost_usage_over_allocation_ratio"),
        e.number("gpu_hours_billed_over_requested_ratio"),
    )
    same = both(both_bases.at_least(SAME.low), both_bases.at_most(SAME.high))
    all_hours = both(hours.at_least(SAME.low), hours.at_most(SAME.high))
    case.must(claims)
    case.shows(same, 3.5)
    case.shows(all_hours, 3.0)
    case.sign(both(either(same, all_hours), gpu_idle(e)), yes=1.0)
    case.sign(e.number("gpu_util_ratio").all_above(0.95), yes=-2.0)
    case.refutes(both_bases.below(SAME.low))
    return case.opinion(
        "warning",
        advice="Charge by measured GPU time: the report only repeats what was requested.",
    )


@rule(
    "COST004",
    cause="fractional_gpu_billed_whole",
    needs=(
        "gpu_share_billed_ratio",
        "gpu_share_requested_ratio",
        "gpu_cost_over_instance_price_ratio",
        "k8s.gpu_replicas_label",
        "vgpu.core_limit_ratio",
    ),
    fires={
        "settings": {"k8s.gpu_sharing": "time_slicing", "k8s.gpu_replicas_label": 8},
        "signals": {"gpu_cost_over_instance_price_ratio": 7.6},
    },
    clear={"signals": {"gpu_share_billed_ratio": 0.5, "gpu_share_requested_ratio": 0.5}},
    silent={"settings": {"k8s.gpu_sharing": "time_slicing", "k8s.gpu_replicas_label": 8}},
)
def share_is_billed_as_whole(e: Evidence) -> Opinion:
    """A share of a GPU is charged as a whole one.

    ## Why it costs money
    The pods of one card together are charged several times its price. Teams pay for capacity
    that does not exist, and sharing looks more expensive than a card of one's own.

    ## How it is told
    The billed share is above the requested one; or the GPUs of a node cost more than the node,
    which cannot be, and the card is advertised several times. A card that really was requested
    as a whole is charged rightly.

    ## What to do
    Divide by the number of advertised copies (newer OpenCost reads `nvidia.com/gpu.replicas`)
    or by the share (HAMi: `nvidia.com/gpucores`), and check that all pods of a card
    add up to its price.

    ## Risk
    Copies that stand empty must appear as idle, or the sum is below the invoice.
    """
    case = Case()
    billed, requested = e.number("gpu_share_billed_ratio"), _requested(e)
    over_price = e.number("gpu_cost_over_instance_price_ratio").above(SHARE_EXCESS)
    copies = e.number("k8s.gpu_replicas_label").above(1.0)
    shared = either(
        e.is_one_of("k8s.gpu_sharing", *SHARED), e.number("k8s.pods_on_gpu").above(1.0), copies
    )
    excess = billed.exceeds(requested, factor=SHARE_EXCESS)
    hours = e.number("gpu_hours_billed_over_requested_ratio").above(SHARE_EXCESS)
    case.shows(excess, 4.0)
    case.shows(both(over_price, shared), 4.5)
    case.shows(over_price, 3.0)
    case.shows(both(hours, shared), 3.0)
    case.sign(shared, yes=0.5)
    if over_price.truth is not True:
        case.refutes(
            billed.where("<= the requested share", lambda share: _within(share, requested))
        )
    return case.opinion(
        "critical",
        advice=f"Charge {requested.value.shown()} of the card, not {billed.value.shown()}."
        if excess.truth
        else "Divide the card's price by its advertised copies.",
    )


def _requested(e: Evidence) -> Quantity:
    """Share of a card that the pod asked for: stated, or by its limit, or by the copies."""
    stated = e.number("gpu_share_requested_ratio")
    if stated.known:
        return stated
    limit = e.number("vgpu.core_limit_ratio")
    if limit.known:
        return limit
    slices = re.match(r"(\d)g\.", e.text("hardware.mig_profile") or "")
    if slices:
        # Seven compute slices on large cards, four on an A30.
        share = Interval(min(int(slices[1]) / 7, 1.0), min(int(slices[1]) / 4, 1.0))
        return Quantity("gpu_share_requested_ratio", "ratio", "one", (share,))
    for key in ("k8s.gpu_replicas_label", "k8s.pods_on_gpu"):
        copies = e.number(key)
        if copies.known and copies.value.low >= 1:
            share = exactly(1.0).over(copies.value)
            return Quantity("gpu_share_requested_ratio", "ratio", "one", (share,))
    return stated


def _within(share: Interval, requested: Quantity) -> bool | None:
    if not requested.known:
        return None
    over = share.exceeds(requested.value.times(exactly(SHARE_EXCESS)))
    return None if over is None else not over


@rule(
    "COST005",
    cause="metering_too_coarse",
    needs=("metering.cost_basis", "k8s.pods_on_gpu", "cost_usage_over_allocation_ratio"),
    fires={
        "settings": {"metering.cost_basis": "allocation", "k8s.pods_on_gpu": 4},
        "signals": {"cost_usage_over_allocation_ratio": 0.35, "gpu_share_billed_ratio": 0.25},
    },
    clear={"settings": {"metering.cost_basis": "usage"}},
    silent={"settings": {"metering.cost_basis": "allocation", "k8s.pods_on_gpu": 4}},
)
def tenants_share_without_a_meter(e: Evidence) -> Opinion:
    """Tenants or models share cards, and only what a pod was allocated is metered.

    ## Why it costs money
    Who sends ten times the tokens pays the same. Nobody gains by sending less, and what stands
    idle is hidden in everyone's share.

    ## How it is told
    Costs go by allocation, several pods or adapters share a card, and by usage they would differ
    from it by far. A report that claims to go by usage is `cost_basis_allocation_not_usage`.

    ## What to do
    Charge by GPU time and tokens per tenant, model and adapter, as `mileage cost` does from the
    gateway's ledger, and show idle time as an item of its own.

    ## Risk
    Idle time becomes visible as somebody's cost: agree on who bears it before the first bill.
    Records per request hold who asked when: keep them only as long as billing needs.
    """
    case = Case()
    usage = e.number("cost_usage_over_allocation_ratio")
    case.must(e.is_one_of("metering.cost_basis", "allocation"))
    case.must(
        either(
            e.number("k8s.pods_on_gpu").above(1.0),
            e.is_one_of("k8s.gpu_sharing", *SHARED),
            e.number("lora_adapters").above(1.0),
        )
    )
    case.shows(either(usage.below(USAGE_LOW), usage.above(1.0 / USAGE_LOW)), 3.0)
    return case.opinion(advice="Charge by GPU time and tokens in place of allocation.")


RULES: tuple[Rule, ...] = (
    model_has_no_price,
    cost_is_not_stored,
    usage_report_shows_allocation,
    share_is_billed_as_whole,
    tenants_share_without_a_meter,
)
"""Rules of this family."""
