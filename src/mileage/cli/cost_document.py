"""The JSON document of `mileage cost`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgspec

from mileage.cli.cost_window import Window
from mileage.ledger.bill import Account, Bill, BilledReplica, kinds_of_use
from mileage.ledger.bill_sums import Amount
from mileage.ledger.billing_config import BillingConfig
from mileage.ledger.token_cost import token_costs

__all__ = ["cost_document", "encoded_cost", "usd_of"]

_NANO = Decimal(1_000_000_000)


def encoded_cost(document: Mapping[str, Any]) -> bytes:
    """The document as JSON. Amounts of USD are numbers with nine decimals at most, so they sum as
    exactly as they are, if they are read as decimals."""
    return msgspec.json.Encoder(decimal_format="number").encode(document)


def usd_of(nano_usd: int | None) -> Decimal | None:
    """USD, exactly."""
    return None if nano_usd is None else Decimal(nano_usd) / _NANO


def cost_document(
    bill: Bill,
    window: Window,
    config: BillingConfig,
    *,
    by: str,
    spread: str,
    settled_until_utc_s: int | None,
    cached_ratio: float | None,
    warnings: Sequence[str],
    engine_queue_s: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """All that the command knows. Times are GPU-nanoseconds; money is USD, None without a price.

    `engine_queue_s`: where accounts are requests, how long each waited, as far as engines told.
    """
    whole_ns = bill.total.gpu_ns
    provisional = settled_until_utc_s is not None and settled_until_utc_s < window.until_utc_s
    return {
        "by": by,
        "window": {
            **window.document(),
            "settled_until_utc_s": settled_until_utc_s,
            "provisional": provisional,
        },
        "gpu_ns_total": whole_ns,
        "usd_total": usd_of(bill.total.whole_nano_usd),
        "idle_gpu_ns": bill.idle.gpu_ns,
        "idle_usd": usd_of(bill.idle.whole_nano_usd),
        "accounts": [
            _account(account, whole_ns, cached_ratio, engine_queue_s) for account in bill.accounts
        ],
        "where": {kind: _amount(amount) for kind, amount in bill.where.items()},
        "spread": spread,
        "unpriced_gpu_ns": bill.total.unpriced_ns,
        "usd_of_priced": usd_of(bill.total.nano_usd),
        "currency": {"code": config.currency, "per_usd": config.currency_per_usd or 1.0},
        "cached_token_ratio": cached_ratio,
        "replicas": [_replica(replica) for replica in bill.replicas],
        "warnings": list(warnings),
    }


def _amount(amount: Amount) -> dict[str, Any]:
    return {"gpu_ns": amount.gpu_ns, "usd": usd_of(amount.whole_nano_usd)}


def _account(
    account: Account,
    whole_ns: int,
    cached_ratio: float | None,
    engine_queue_s: Mapping[str, float] | None,
) -> dict[str, Any]:
    use, total, spread = account.use, account.total, account.spread
    low_ns, high_ns = min(use.low_ns, use.gpu_ns), max(use.high_ns, use.gpu_ns)
    document: dict[str, Any] = {
        "name": account.name,
        "gpu_ns": total.gpu_ns,
        "usd": usd_of(total.whole_nano_usd),
        "requests": use.requests,
        "prompt_tokens": use.prompt_tokens,
        "cached_tokens": use.cached_tokens,
        "output_tokens": use.output_tokens,
        "interval": {
            "gpu_ns": [spread.gpu_ns + low_ns, spread.gpu_ns + high_ns],
            "usd": [_usd_at(account, low_ns), _usd_at(account, high_ns)],
        },
        "requests_failed": use.requests_failed,
        "share_ratio": total.gpu_ns / whole_ns if whole_ns else None,
        "used_gpu_ns": use.gpu_ns,
        "used_usd": usd_of(use.whole_nano_usd),
        "spread_gpu_ns": spread.gpu_ns,
        "spread_usd": usd_of(spread.whole_nano_usd),
        "saturated_ratio": use.saturated_ns / use.gpu_ns if use.gpu_ns else None,
        "usd_per_request": _per_request(account),
        "usd_per_mtok": msgspec.structs.asdict(token_costs(use, cached_ratio)),
        "where": {
            kind: _amount(amount) for kind, amount in (*kinds_of_use(use).items(), ("idle", spread))
        },
    }
    if engine_queue_s is not None:
        document["engine_queue_s"] = engine_queue_s.get(account.name)
    if account.idle is not None:
        document["idle"] = _amount(account.idle)
    return document


def _usd_at(account: Account, use_ns: int) -> Decimal | None:
    """What the account would cost, had it used so much."""
    nano_usd, use = account.total.whole_nano_usd, account.use
    if nano_usd is None:
        return None
    if not use.gpu_ns:
        return usd_of(nano_usd)
    return usd_of(account.spread.nano_usd + use.nano_usd * use_ns // use.gpu_ns)


def _per_request(account: Account) -> float | None:
    nano_usd, requests = account.total.whole_nano_usd, account.use.requests
    return None if nano_usd is None or not requests else nano_usd / requests / 1e9


def _replica(replica: BilledReplica) -> dict[str, Any]:
    price = replica.price
    return {
        "replica": replica.replica,
        "gpu": replica.gpu or None,
        "gpus": replica.gpus,
        "gpu_ns": replica.total.gpu_ns,
        "usd": usd_of(replica.total.whole_nano_usd),
        "idle_gpu_ns": replica.idle.gpu_ns,
        "warmup_gpu_ns": replica.warmup.gpu_ns,
        "usd_per_gpu_hour": None if price is None else price.usd_per_gpu_hour,
        "price_basis": None if price is None else price.basis,
        "price_source": None if price is None else price.source,
        "price_date": None if price is None else price.date,
        "price_note": None if price is None else price.note,
    }
