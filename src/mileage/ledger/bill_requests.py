"""The bill by request: what each single request used and cost, adding up to the same whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from mileage.control.gpu_meter import split
from mileage.ledger.account_name import MORE, AccountNames, booked_text
from mileage.ledger.bill import Account, Bill
from mileage.ledger.bill_sums import Amount, UseSums, shared_amount
from mileage.ledger.usage_row import UsageRow

__all__ = ["NOT_ON_RECORD", "BookNames", "RequestUse", "by_request"]

NOT_ON_RECORD: Final = "(requests not on record)"
"""What requests used that were deleted since (`ledger.retention_days`)."""
_BOOK: Final = "book\x1f"

_SUMS: Final = ("requests", "requests_failed", "prompt_tokens", "cached_tokens", "output_tokens")


class RequestUse(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One request of the ledger. GPU times are sums over all of its windows, the bill's or not."""

    id: int
    replica: str
    tenant: str
    model: str
    adapter: str = ""
    key: str = ""
    labels: str = ""
    arrived_at_utc_ns: int
    began_at_utc_ns: int
    ended_at_utc_ns: int
    """When its replica had it; both the time of arrival where none had it."""
    ok: bool = True
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    gpu_ns: int = 0
    low_ns: int = 0
    high_ns: int = 0
    prefill_ns: int = 0
    recomputed_ns: int = 0

    def inside(self, since_ns: int, until_ns: int) -> float:
        """The part of its time that lies in the window."""
        if self.ended_at_utc_ns <= self.began_at_utc_ns:
            return float(since_ns <= self.began_at_utc_ns < until_ns)
        start, end = max(since_ns, self.began_at_utc_ns), min(until_ns, self.ended_at_utc_ns)
        return max(0, end - start) / (self.ended_at_utc_ns - self.began_at_utc_ns)


class BookNames(AccountNames):
    """Accounts of what the ledger books together: the first step of the bill by request."""

    def __init__(self) -> None:
        self.group = "request"

    @property
    def texts(self) -> tuple[str, ...]:
        """All of them."""
        return ("tenant", "model", "adapter", "key", "labels")

    def of(self, row: UsageRow) -> str:
        """The row's texts."""
        return _book(
            (row.replica, row.tenant, row.model, row.adapter, row.key, row.labels),
        )


def by_request(
    books: Bill, requests: Iterable[RequestUse], *, since_utc_s: int, until_utc_s: int
) -> Bill:
    """The bill with an account per request, of `books`, a bill by BookNames of the same time.

    A request that ran inside the window has exactly what the ledger attributed to it. Of what is
    left of its book, requests that ran across the window's ends have a part, by what they had and
    how much of their time is inside; the rest is of requests that are not on record any more.
    Money, and spread idle time, are in proportion to GPU time within a book.
    """
    since_ns, until_ns = since_utc_s * 1_000_000_000, until_utc_s * 1_000_000_000
    accounts = {account.name: account for account in books.accounts}
    members: dict[str, list[RequestUse]] = {}
    for request in requests:
        texts = map(booked_text, (request.model, request.adapter, request.key))
        name = _book((request.replica, request.tenant, *texts, request.labels))
        if name not in accounts:
            name = _book((request.replica, request.tenant, MORE, MORE, MORE, MORE))
        if name in accounts:
            members.setdefault(name, []).append(request)
    made: list[Account] = []
    rest, rest_spread = UseSums(), Amount()
    for name, account in accounts.items():
        if not name.startswith(_BOOK):
            made.append(account)
            continue
        found, left = _share(account, members.get(name, []), since_ns, until_ns)
        made += found
        rest.take_all(left.use)
        rest_spread.take(left.spread)
    if rest.gpu_ns or rest.requests:
        made.append(_account(NOT_ON_RECORD, rest, rest_spread))
    made.sort(key=lambda a: (not a.own, -a.total.nano_usd, -a.total.gpu_ns, a.name))
    return msgspec.structs.replace(books, accounts=tuple(made))


def _book(texts: tuple[str, ...]) -> str:
    return _BOOK + "\x1f".join(texts)


def _share(
    account: Account, requests: Sequence[RequestUse], since_ns: int, until_ns: int
) -> tuple[list[Account], Account]:
    """An account per request, and what is left of the book."""
    use = account.use
    parts = [*_inside_ns(use.gpu_ns, requests, since_ns, until_ns)]
    parts.append(use.gpu_ns - sum(parts))
    weights = parts if use.gpu_ns else [0] * len(requests) + [1]
    money = split(use.nano_usd, weights)
    unpriced = split(use.unpriced_ns, weights)
    spread = shared_amount(account.spread, weights)
    made = []
    left = UseSums()
    left.take_all(use)
    for place, request in enumerate(requests):
        gpu_ns = parts[place]
        arrived = since_ns <= request.arrived_at_utc_ns < until_ns
        if not arrived and not gpu_ns:
            continue
        sums = _sums(request, gpu_ns, counted=arrived)
        sums.nano_usd, sums.unpriced_ns = money[place], unpriced[place]
        left.give(sums)
        for field in _SUMS:
            setattr(left, field, max(0, getattr(left, field) - getattr(sums, field)))
        made.append(_account(str(request.id), sums, spread[place]))
    return made, _account(NOT_ON_RECORD, _kinds_of_rest(use, left, made), spread[-1])


def _inside_ns(
    book_ns: int, requests: Sequence[RequestUse], since_ns: int, until_ns: int
) -> list[int]:
    """GPU time of each request that is in the window, together at most that of the book."""
    inside = [request.inside(since_ns, until_ns) for request in requests]
    parts = [r.gpu_ns if part == 1.0 else 0 for r, part in zip(requests, inside, strict=True)]
    rest = book_ns - sum(parts)
    if rest < 0:  # what is booked is less than what was told of requests: in proportion
        return split(book_ns, parts)
    edges = [i for i, part in enumerate(inside) if 0.0 < part < 1.0 and requests[i].gpu_ns]
    if edges:
        weights = [max(1, round(requests[i].gpu_ns * inside[i])) for i in edges]
        most = min(rest, sum(requests[i].gpu_ns for i in edges))
        for i, gpu_ns in zip(edges, split(most, weights), strict=True):
            parts[i] = gpu_ns
    return parts


def _sums(request: RequestUse, gpu_ns: int, *, counted: bool) -> UseSums:
    """`counted`: it arrived in the window, and so its tokens are in it."""
    whole = request.gpu_ns

    def part(of_all: int) -> int:
        return of_all * gpu_ns // whole if whole else 0

    row = UsageRow(
        hour_at_utc_s=0,
        replica=request.replica,
        tenant=request.tenant,
        model=request.model,
        requests=int(counted),
        requests_failed=int(counted and not request.ok),
        prompt_tokens=request.prompt_tokens if counted else 0,
        cached_tokens=request.cached_tokens if counted else 0,
        output_tokens=request.output_tokens if counted else 0,
        gpu_ns=gpu_ns,
        prefill_ns=part(request.prefill_ns),
        recomputed_ns=part(request.recomputed_ns),
        failed_ns=0 if request.ok else gpu_ns,
        low_ns=part(request.low_ns),
        high_ns=part(request.high_ns),
    )
    sums = UseSums()
    sums.add_row(row, 0)
    return sums


def _kinds_of_rest(use: UseSums, left: UseSums, made: Sequence[Account]) -> UseSums:
    """The rest of the book with what its time was for, as far as that is left."""
    kinds = ("prefill_ns", "decode_ns", "recomputed_ns", "failed_ns")
    given = {kind: sum(getattr(each.use, kind) for each in made) for kind in kinds}
    weights = [max(0, getattr(use, kind) - given[kind]) for kind in kinds]
    parts = split(left.gpu_ns, weights if any(weights) else [1, 0, 0, 0])
    for kind, gpu_ns in zip(kinds, parts, strict=True):
        setattr(left, kind, gpu_ns)
    left.low_ns = max(0, use.low_ns - sum(each.use.low_ns for each in made))
    left.high_ns = max(0, use.high_ns - sum(each.use.high_ns for each in made))
    left.saturated_ns = min(left.saturated_ns, left.gpu_ns)
    return left


def _account(name: str, use: UseSums, spread: Amount) -> Account:
    total = Amount()
    total.take(use)
    total.take(spread)
    return Account(name=name, total=total, use=use, spread=spread)
