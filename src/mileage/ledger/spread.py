"""Spreading: who pays for GPU time that nobody used: by use, by reservation."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from mileage.control.gpu_meter import split
from mileage.ledger.bill_sums import Amount, shared_amount

__all__ = ["pools", "spread_by_reservation", "spread_by_use"]


def spread_by_use(
    waste: Mapping[str, Amount],
    use: Mapping[str, Mapping[str, int]],
    models: Mapping[str, Collection[str]],
) -> tuple[dict[str, Amount], dict[str, Amount]]:
    """What each account pays of the waste, and what is left to nobody, by replica.

    `waste` by replica; `use`: GPU-nanoseconds by replica and account; `models`: which models each
    replica served. The waste of a replica is paid by those who used its pool: the replicas that
    serve the same models. That of a pool that nobody used is paid by all, where nobody used
    anything it is left.
    """
    pool_of = pools(models)
    by_pool: dict[str, dict[str, int]] = {}
    by_all: dict[str, int] = {}
    for replica, accounts in use.items():
        of_pool = by_pool.setdefault(pool_of.get(replica, replica), {})
        for name, gpu_ns in accounts.items():
            of_pool[name] = of_pool.get(name, 0) + gpu_ns
            by_all[name] = by_all.get(name, 0) + gpu_ns
    paid: dict[str, Amount] = {}
    left: dict[str, Amount] = {}
    for replica, amount in waste.items():
        weights = by_pool.get(pool_of.get(replica, replica), {})
        if not any(weights.values()):
            weights = by_all
        if not any(weights.values()):
            left[replica] = amount
            continue
        names = list(weights)
        for name, part in zip(names, shared_amount(amount, list(weights.values())), strict=True):
            paid.setdefault(name, Amount()).take(part)
    return paid, left


def pools(models: Mapping[str, Collection[str]]) -> dict[str, str]:
    """Replica -> a name of its pool: those that serve a model in common are in one, directly or by
    way of others."""
    leader: dict[str, str] = {}

    def find(item: str) -> str:
        while (above := leader.setdefault(item, item)) != item:
            leader[item] = leader[above]
            item = above
        return item

    for replica, names in models.items():
        for name in names:
            leader[find(f"model {name}")] = find(f"replica {replica}")
    return {replica: find(f"replica {replica}") for replica in models}


def spread_by_reservation(
    waste: Sequence[Amount], reserved_ns: Mapping[str, int], used_ns: Mapping[str, int]
) -> tuple[dict[str, Amount], list[Amount]]:
    """What each tenant pays of one hour's waste, and what is left of each part of it.

    A tenant pays for what it had reserved in that hour and did not use, and never for more than
    that; where less was wasted than all of them left unused, each pays in proportion. `waste`: any
    parts of it, such as of each replica; the same part of each is paid.
    """
    unused = {
        tenant: gpu_ns - min(gpu_ns, used_ns.get(tenant, 0))
        for tenant, gpu_ns in reserved_ns.items()
    }
    total, wasted = sum(unused.values()), _sum(waste)
    charged = min(total, wasted)
    if not charged:
        return {}, list(waste)
    paid = {tenant: Amount() for tenant, gpu_ns in unused.items() if gpu_ns}
    weights = [gpu_ns for gpu_ns in unused.values() if gpu_ns]
    left = []
    for part, taken_ns in zip(waste, split(charged, [a.gpu_ns for a in waste]), strict=True):
        if not part.gpu_ns:
            left.append(part)
            continue
        taken, rest = shared_amount(part, [taken_ns, part.gpu_ns - taken_ns])
        left.append(rest)
        for tenant, share in zip(paid, shared_amount(taken, weights), strict=True):
            paid[tenant].take(share)
    return paid, left


def _sum(amounts: Iterable[Amount]) -> int:
    return sum(amount.gpu_ns for amount in amounts)
