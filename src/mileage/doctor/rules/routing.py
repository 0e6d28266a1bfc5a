"""Rules of routing: requests go to the wrong replica, or too many of them to one."""

from __future__ import annotations

from collections.abc import Sequence

from mileage.doctor.arms import Arm, Ratio
from mileage.doctor.case import Case
from mileage.doctor.check import Check, both, either
from mileage.doctor.evidence import Evidence
from mileage.doctor.load_balance import balanced, idle_share, lopsided, uneven
from mileage.doctor.opinion import Change, Opinion
from mileage.doctor.prefix_reuse import caching_off, nothing_shared, shares_a_prefix
from mileage.doctor.rule import Rule, rule
from mileage.doctor.rules.setting_effect import (
    effect_check,
    loss_of_effect,
    no_gain,
    speeds,
    with_more,
)

__all__ = ["RULES"]

UNAWARE = ("round_robin", "random", "least_loaded")
AFFINE = ("consistent_hash", "cache_aware", "kv_aware")

HITS_GAIN = 1.1
"""Hit ratio with affinity over that without: a tenth more tokens that need no prefill."""

HITS_GOOD = 0.8
"""Hit ratio at which routing has little left to gain."""

SLOWER = 0.95
"""Speed of one policy over that of another at which it is clearly slower."""

MUCH_SLOWER = 0.85
"""Speed of a blind policy over one with affinity that only the caches explain."""

GROUPS_MANY = 2.0
"""Distinct heads for each replica from which spreading them makes each replica hold them all."""


@rule(
    "RTE001",
    cause="cache_unaware_routing",
    needs=(
        "router.policy",
        "multi_turn",
        "prefix_groups",
        "topology.replicas",
        "prefix_cache_hit_ratio",
        "comparisons",
    ),
    fires={
        "settings": {"router.policy": "random"},
        "topology": {"proxies": ["router"], "replicas": 6},
        "workload": {"multi_turn": True},
        "signals": {"prefix_cache_hit_ratio": 0.2},
    },
    clear={
        "settings": {"router.policy": "random"},
        "topology": {"proxies": ["router"], "replicas": 6},
        "workload": {"multi_turn": False, "shared_prefix_tokens": 0},
    },
    silent={"settings": {"router.policy": "random"}, "topology": {"replicas": 6}},
)
def routing_ignores_caches(e: Evidence) -> Opinion:
    """The router spreads requests that share a prefix over replicas that do not have it.

    ## Why it costs money
    A conversation whose next turn lands on another replica is computed from its first token.
    With N replicas chosen blindly only one turn in N finds its past, and each replica's cache
    fills with copies of what the others hold.

    ## How it is told
    The policy looks at no prefix (round robin, random, least loaded), and conversations come back
    or many groups share heads; the hit ratio is higher with an affinity policy, or on a single
    replica. One head common to all prompts is soon in every replica and loses nothing. If one
    replica queues while others idle it is `affinity_hotspot`.

    ## What to do
    Route by session or by prefix with a term for load: `kv_aware` or `cache_aware` where the
    router offers it, else consistent hashing with bounded loads on the conversation's id.

    ## Risk
    Affinity makes load uneven: a popular prefix turns one replica into a hot spot while others
    idle, so never without a term for load. When a replica is added or dies, the sessions that move
    compute their prompts once more.
    """
    case = Case()
    unaware = either(
        e.is_one_of("router.policy", *UNAWARE),
        e.is_unset("router.policy").said("not set: round robin or random"),
    )
    comes_back = either(e.is_true("multi_turn"), _many_groups(e))
    case.shows(both(_more_hits_with_affinity(e), _affine_not_slower(e)), 4.5)
    case.shows(both(unaware, comes_back, _several_replicas(e)), 2.6)
    case.shows(both(either(unaware, shares_a_prefix(e)), effect_check(_of_unaware(e), SLOWER)), 4.0)
    case.shows(effect_check(_of_unaware(e), MUCH_SLOWER), 3.0)
    case.shows(_hits_fall_with_replicas(e), 3.5)
    case.refutes(e.is_one_of("router.policy", *AFFINE))
    case.refutes(e.number("topology.replicas").at_most(1.0))
    case.refutes(nothing_shared(e))
    case.sign(e.number("prefix_cache_hit_ratio").at_least(HITS_GOOD), yes=-2.5, no=0.5)
    case.sign(caching_off(e), yes=-3.0)
    return case.opinion(
        changes=(Change("router.policy", "cache_aware"),),
        waste_ratio=loss_of_effect(_of_unaware(e)),
    )


@rule(
    "RTE002",
    cause="affinity_hotspot",
    needs=(
        "router.policy",
        "router.load_term",
        "requests_waiting",
        "requests_running",
        "preemptions_per_s",
        "kv_cache_usage_ratio",
        "comparisons",
    ),
    explains=("kv_preemption", "max_num_seqs_cap", "kv_room_too_small"),
    fires={
        "settings": {"router.policy": "consistent_hash", "router.load_term": False},
        "topology": {"proxies": ["router"], "replicas": 3},
        "signals": {"requests_waiting": [40, 0, 0], "requests_running": [64, 5, 2]},
    },
    clear={
        "settings": {"router.policy": "consistent_hash"},
        "topology": {"proxies": ["router"], "replicas": 3},
        "signals": {"requests_waiting": [0, 0, 0], "requests_running": [21, 22, 20]},
    },
    silent={
        "settings": {"router.policy": "consistent_hash", "router.load_term": False},
        "topology": {"proxies": ["router"], "replicas": 3},
    },
)
def affinity_without_load(e: Evidence) -> Opinion:
    """Affinity sends too many requests to one replica while others idle.

    ## Why it costs money
    The idle replicas are paid for, and the requests of the busy one wait, or push each other out
    of its memory, so that even the hits are lost for whose sake they were sent there.

    ## How it is told
    The router follows prefixes or sessions, and one replica queues, preempts or is full while its
    peers are not; or the same traffic is served faster by round robin. Uneven ranks behind one
    endpoint of an engine are `dp_imbalance`. That the busy replica preempts or is at its cap is a
    consequence: the fleet has room.

    ## What to do
    Give the policy a term for load (`router.load_term`): consistent hashing with bounded loads
    (1.25 x mean), cache-aware routing with a balance threshold, or a limit for each replica with
    overflow to the next.

    ## Risk
    Requests that overflow to another replica compute their prefix anew, so cached tokens fall and
    prefill work rises a little. A bound that is too tight throws all affinity away: begin at 1.25
    times the mean and watch hit ratio and waiting requests of each replica together.
    """
    case = Case()
    affine = e.is_one_of("router.policy", *AFFINE)
    no_term = e.is_false("router.load_term")
    case.shows(both(affine, lopsided(e)), 3.6)
    case.shows(both(affine, uneven(e)), 2.5)
    case.shows(both(_router_in_front(e), no_term, uneven(e)), 3.0)
    case.shows(both(affine, effect_check(_of_affine(e), SLOWER)), 4.0)
    case.shows(effect_check(_of_affine(e), SLOWER), 3.2)
    case.shows(_lopsided_arm(e, "router.policy", AFFINE), 3.2)
    case.shows(both(_router_in_front(e), _hot_by_hits(e)), 2.6)
    case.refutes(e.is_one_of("router.policy", *UNAWARE))
    case.refutes(e.number("topology.replicas").at_most(1.0))
    case.refutes(balanced(e))
    case.refutes(both(e.is_one_of("dp_balancer.mode", "internal"), _no_router(e)))
    case.sign(no_term, yes=1.0)
    case.sign(e.is_true("router.load_term"), yes=-0.7)
    return case.opinion(
        changes=(Change("router.load_term", True),),
        waste_ratio=idle_share(e) or loss_of_effect(_of_affine(e)),
    )


@rule(
    "RTE003",
    cause="dp_imbalance",
    needs=(
        "data_parallel_size",
        "dp_balancer.mode",
        "requests_running",
        "requests_waiting",
        "kv_cache_usage_ratio",
        "output_tokens_per_s",
        "comparisons",
    ),
    explains=("kv_preemption", "max_num_seqs_cap", "kv_room_too_small"),
    fires={
        "settings": {"data_parallel_size": 4, "dp_balancer.mode": "internal"},
        "signals": {"requests_running": [60, 20, 22, 18], "requests_waiting": [30, 0, 0, 0]},
    },
    clear={
        "settings": {"data_parallel_size": 4, "dp_balancer.mode": "internal"},
        "signals": {"requests_running": [31, 29, 30, 30], "requests_waiting": [0, 0, 0, 0]},
    },
    silent={
        "settings": {"data_parallel_size": 4, "dp_balancer.mode": "internal"},
        "signals": {"requests_running": 120},
    },
)
def ranks_loaded_unevenly(e: Evidence) -> Opinion:
    """The balancer behind one endpoint gives data-parallel ranks very different loads.

    ## Why it costs money
    Ranks with little to do cost as much as the full ones. With experts spread over the ranks all
    of them wait in each step for the slowest.

    ## How it is told
    One endpoint, several ranks (`data_parallel_size`), and running or waiting requests, memory in
    use or tokens per second differ between them. With a router in front of separate replicas it
    is the router's (`affinity_hotspot`). That the fullest rank preempts or is at its cap follows.

    ## What to do
    Give each rank an endpoint of its own behind a router that knows their load (vLLM
    `--data-parallel-external-lb` or `--data-parallel-hybrid-lb`), let the balancer read its
    counts more often, run more API servers, or route by tokens, not by requests. SGLang:
    `--load-balance-method` by load.

    ## Risk
    An external balancer means one endpoint per rank to discover, probe and drain, and with experts
    in parallel all ranks still step together, so a dead rank stops every one. Sessions that were
    stuck to one rank lose their cached prefix at the change.
    """
    case = Case()
    ranks = either(
        e.number("data_parallel_size").at_least(2.0), e.is_one_of("dp_balancer.mode", "internal")
    )
    case.shows(both(ranks, lopsided(e)), 3.6)
    case.shows(both(ranks, uneven(e)), 2.5)
    case.shows(effect_check(_of_internal(e), SLOWER), 4.0)
    case.shows(_lopsided_arm(e, "dp_balancer.mode", ("internal",)), 3.2)
    case.shows(both(ranks, no_gain(_of_longer_interval(e), SLOWER)), 3.2)
    case.refutes(balanced(e))
    case.refutes(e.number("data_parallel_size").at_most(1.0))
    case.refutes(e.is_one_of("dp_balancer.mode", "external"))
    case.refutes(
        both(
            e.is_one_of("router.policy", *AFFINE),
            e.is_one_of("dp_balancer.mode", "internal").negated(),
        )
    )
    case.sign(e.is_one_of("dp_balancer.mode", "internal"), yes=1.0)
    case.sign(_router_in_front(e), yes=-1.2)
    case.sign(e.number("dp_balancer.stats_interval_s").at_least(0.5), yes=0.5)
    return case.opinion(
        changes=(Change("dp_balancer.mode", "external"),),
        waste_ratio=idle_share(e) or loss_of_effect(_of_internal(e)),
    )


def _several_replicas(e: Evidence) -> Check:
    replicas = e.number("topology.replicas")
    if replicas.known:
        return replicas.at_least(2.0)
    listed = e.number("prefix_cache_hit_ratio").units or e.number("requests_running").units
    if listed:
        return Check("requests_running", len(listed), "several replicas", True)
    # Who has set a policy has something to choose from.
    policy = e.text("router.policy")
    return Check("router.policy", policy, "several replicas", True if policy else None)


def _many_groups(e: Evidence) -> Check:
    """More distinct heads than one for all replicas alike."""
    groups, replicas = e.number("prefix_groups"), e.number("topology.replicas")
    least = GROUPS_MANY * (replicas.value.high if replicas.known else 2.0)
    return groups.where(f">= {least:g}", lambda count: count.at_least(least))


def _policy_in(arm: Arm, policies: Sequence[str]) -> bool | None:
    policy = arm.get("router.policy")
    return None if policy is None else policy in policies


def _of_unaware(e: Evidence) -> tuple[Ratio, ...]:
    return speeds(e, "router.policy", lambda arm: _policy_in(arm, UNAWARE), ("router.load_term",))


def _of_affine(e: Evidence) -> tuple[Ratio, ...]:
    return speeds(e, "router.policy", lambda arm: _policy_in(arm, AFFINE), ("router.load_term",))


def _of_internal(e: Evidence) -> tuple[Ratio, ...]:
    return speeds(e, "dp_balancer.mode", lambda arm: arm.get("dp_balancer.mode") == "internal")


def _of_longer_interval(e: Evidence) -> tuple[Ratio, ...]:
    return with_more(e, "dp_balancer.stats_interval_s", factor=1.5)


def _lopsided_arm(e: Evidence, key: str, values: Sequence[str]) -> Check:
    """An arm with one of `values` is lopsided, and one with another is not."""
    told: dict[bool, list[bool | None]] = {True: [], False: []}
    for comparison in e.comparisons:
        if key not in comparison.varied():
            continue
        for arm in comparison.arms:
            if isinstance(arm.get(key), str):
                told[arm.get(key) in values].append(lopsided(arm).truth)
    truth: bool | None = None
    if told[True] and told[False] and None not in told[True]:
        truth = all(told[True]) and not any(told[False])
    return Check(f"comparisons.{key}", None, "lopsided with it and not without", truth)


def _affine_not_slower(e: Evidence) -> Check:
    """Where speeds are told, affinity is not the slower one."""
    slower = effect_check(_of_affine(e), SLOWER)
    return Check("comparisons", slower.value, "affinity is not slower", slower.truth is not True)


def _more_hits_with_affinity(e: Evidence) -> Check:
    """Arms that differ in the policy: does one that follows prefixes hit more?"""
    truth: bool | None = None
    shown: object = None
    for comparison in e.comparisons:
        for one, other in comparison.pairs():
            first, second = _policy_in(one, AFFINE), _policy_in(other, AFFINE)
            if first is None or second is None or first == second:
                continue
            affine, blind = (one, other) if first else (other, one)
            ratio = comparison.ratio("prefix_cache_hit_ratio", affine, blind)
            better = ratio.at_least(HITS_GAIN).truth
            if better is not None and not truth:
                truth, shown = better, ratio.value.plain()
    return Check(
        "comparisons.prefix_cache_hit_ratio", shown, f">= {HITS_GAIN:g} x with affinity", truth
    )


def _hits_fall_with_replicas(e: Evidence) -> Check:
    """Arms that differ in the number of replicas: are hits fewer with more of them?"""
    truth: bool | None = None
    for comparison in e.comparisons:
        if not comparison.varies_only("topology.replicas", "topology.proxies", "hardware.count"):
            continue
        arms = [arm for arm in comparison.arms if arm.number("topology.replicas").known]
        arms.sort(key=lambda arm: arm.number("topology.replicas").value.middle)
        if len(arms) < 2:
            continue
        ratio = comparison.ratio("prefix_cache_hit_ratio", arms[-1], arms[0])
        if ratio.known:
            truth = ratio.at_most(1 / HITS_GAIN).truth
    return Check("comparisons", None, "hits fall as replicas are added", truth)


def _router_in_front(e: Evidence) -> Check:
    policy = e.text("router.policy")
    if policy is not None:
        return Check("router.policy", policy, "a router in front", True)
    hops = e.words("topology.proxies")
    if hops is None:
        return Check("topology.proxies", None, "a router in front", None)
    return Check("topology.proxies", list(hops), "a router in front", bool(hops))


def _no_router(e: Evidence) -> Check:
    router = _router_in_front(e)
    return Check(router.signal, router.value, "no router in front", router.truth is not True)


def _hot_by_hits(e: Evidence) -> Check:
    """One replica queues or preempts, and hits differ between replicas as well."""
    hits = e.number("prefix_cache_hit_ratio")
    apart: bool | None = None
    if hits.units:
        apart = hits.most.low >= max(0.2, 2.0 * hits.least.high)
    return both(lopsided(e), Check(hits.key, hits.plain(), "differs between replicas", apart))


RULES: tuple[Rule, ...] = (routing_ignores_caches, affinity_without_load, ranks_loaded_unevenly)
"""Rules of this family."""
