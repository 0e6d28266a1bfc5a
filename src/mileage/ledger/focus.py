"""FOCUS rows: the bill as the FinOps Open Cost and Usage Specification has it, version 1.2."""

# ruff: noqa: N815 (the names are those of the specification)

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Final, NamedTuple

import msgspec

from mileage.ledger.account_name import MORE
from mileage.ledger.bill import kinds_of_use
from mileage.ledger.bill_cells import Cell
from mileage.ledger.bill_sums import Amount, UseSums
from mileage.ledger.calendar import Period, local_time, period_bounds

__all__ = ["FocusNames", "FocusRow", "UnpricedTime", "focus_rows"]

_NANO: Final = Decimal(1_000_000_000)
_TOKENS: Final = {"prefill": "Tokens", "decode": "Tokens"}
_KIND_TEXT: Final = {
    "prefill": "prompts",
    "decode": "answers",
    "recomputed": "prompts that were computed again",
    "failed": "requests that did not end well",
    "idle": "idle GPUs",
    "warmup": "GPUs that were loading a model",
    "unattributed": "GPU time that is nobody's on record",
}


class FocusNames(msgspec.Struct, frozen=True, kw_only=True):
    """Who bills whom, as the columns of the specification call them."""

    provider: str = "Self-hosted"
    """ProviderName, PublisherName and InvoiceIssuerName."""
    service: str = "LLM inference"
    billing_account_id: str = "mileage"
    billing_account_name: str = "Mileage"


class UnpricedTime(NamedTuple):
    """GPU time without a price, which the specification has no place for."""

    replica: str
    hour_at_utc_s: int


class FocusRow(msgspec.Struct, frozen=True, kw_only=True):
    """One charge; columns in alphabetical order, as the specification names them.

    Costs are decimal numbers in BillingCurrency, times are UTC in ISO 8601, ends are exclusive;
    None is null. BilledCost, EffectiveCost, ContractedCost and ListCost are the same: there are no
    discounts or amortised commitments between a gateway and its tenants.

    Source: FOCUS 1.2, https://focus.finops.org/focus-specification/v1-2/ (all 21 mandatory columns,
    and the conditional ones that apply).
    """

    BilledCost: Decimal
    BillingAccountId: str
    BillingAccountName: str
    BillingCurrency: str
    BillingPeriodEnd: str
    BillingPeriodStart: str
    ChargeCategory: str = "Usage"
    ChargeClass: str | None = None
    ChargeDescription: str
    ChargeFrequency: str = "Usage-Based"
    ChargePeriodEnd: str
    ChargePeriodStart: str
    ConsumedQuantity: Decimal | None
    ConsumedUnit: str | None
    ContractedCost: Decimal
    EffectiveCost: Decimal
    InvoiceIssuerName: str
    ListCost: Decimal
    PricingCategory: str = "Standard"
    PricingQuantity: Decimal
    PricingUnit: str = "GPU-Seconds"
    ProviderName: str
    PublisherName: str
    ResourceId: str
    ResourceName: str
    ResourceType: str = "Inference engine"
    ServiceCategory: str = "AI and Machine Learning"
    ServiceName: str
    ServiceSubcategory: str = "Generative AI"
    SkuId: str
    SubAccountId: str | None
    SubAccountName: str | None
    SubAccountType: str | None
    Tags: str
    x_Adapter: str | None
    x_ApiKeyName: str | None
    x_CachedTokens: int | None
    x_GpuNanoseconds: int
    x_GpuName: str | None
    x_Model: str | None
    x_PriceSource: str
    x_Requests: int | None
    x_Team: str | None
    x_UseKind: str
    """prefill, decode, recomputed, failed, idle, warmup or unattributed."""


class _Key(NamedTuple):
    """Charges with the same key are one row for each kind of use."""

    start_utc_s: int
    replica: str
    gpu: str
    source: str
    tenant: str | None
    model: str
    adapter: str
    key: str
    labels: str


def focus_rows(
    cells: Iterable[Cell],
    *,
    names: FocusNames,
    period: Period,
    zone: dt.tzinfo,
    currency: str = "USD",
    currency_per_usd: float = 1.0,
    team_of: Mapping[str, str] | None = None,
    unpriced: list[UnpricedTime],
) -> Iterator[FocusRow]:
    """Rows of each hour or day, in order. All BilledCost together are the bill's total exactly.

    Idle, warm-up and unattributed time are rows of their own, without a sub-account. Time without a
    price is left out, and told in `unpriced`: a bill that lacks some of it is not to be passed on.
    """
    used: dict[_Key, UseSums] = {}
    wasted: dict[tuple[_Key, str], Amount] = {}
    for cell in cells:
        if cell.price is None:
            if any(row.gpu_ns for row in cell.rows) or cell.idle_ns or cell.warmup_ns:
                unpriced.append(UnpricedTime(cell.replica, cell.hour_at_utc_s))
            continue
        start_utc_s = period_bounds(cell.hour_at_utc_s, period, zone)[0]
        nobody = _Key(start_utc_s, cell.replica, cell.gpu, cell.price.source, None, "", "", "", "")
        for row, nano_usd in zip(cell.rows, cell.nano_usd[:-3], strict=True):
            key = nobody._replace(
                tenant=row.tenant,
                model=row.model,
                adapter=row.adapter,
                key=row.key,
                labels=row.labels,
            )
            used.setdefault(key, UseSums()).add_row(row, nano_usd)
        parts = (cell.idle_ns, cell.warmup_ns, cell.unattributed_ns)
        kinds = ("idle", "warmup", "unattributed")
        for kind, gpu_ns, nano_usd in zip(kinds, parts, cell.nano_usd[-3:], strict=True):
            wasted.setdefault((nobody, kind), Amount()).add(gpu_ns, nano_usd)
    writer = _Writer(names, period, zone, currency, currency_per_usd, team_of or {})
    for key in sorted({*used, *(key for key, _ in wasted)}, key=_order):
        if key in used:
            yield from writer.of_use(key, used[key])
        for kind in ("idle", "warmup", "unattributed"):
            amount = wasted.get((key, kind))
            if amount is not None and amount.gpu_ns:
                yield writer.row(key, kind, amount)


def _order(key: _Key) -> tuple[object, ...]:
    return (key.start_utc_s, key.replica, key.tenant is None, key.tenant or "", *key[5:], key.gpu)


class _Writer:
    """Makes rows of sums."""

    def __init__(
        self,
        names: FocusNames,
        period: Period,
        zone: dt.tzinfo,
        currency: str,
        currency_per_usd: float,
        team_of: Mapping[str, str],
    ) -> None:
        self._names, self._period, self._zone = names, period, zone
        self._currency, self._team_of = currency, team_of
        self._per_nano_usd = Decimal(str(currency_per_usd)) / _NANO

    def of_use(self, key: _Key, sums: UseSums) -> Iterator[FocusRow]:
        """A row for each kind of use; requests are counted in the first, tokens in their own."""
        computed = max(0, sums.prompt_tokens - sums.cached_tokens)
        tokens = {"prefill": computed, "decode": sums.output_tokens}
        kinds = kinds_of_use(sums)
        shown = [kind for kind, amount in kinds.items() if amount.gpu_ns or tokens.get(kind)]
        for place, kind in enumerate(shown or ["prefill"]):
            yield self.row(
                key,
                kind,
                kinds[kind],
                tokens=tokens.get(kind),
                cached_tokens=sums.cached_tokens if kind == "prefill" else None,
                requests=0 if place else sums.requests,
            )

    def row(
        self,
        key: _Key,
        kind: str,
        amount: Amount,
        *,
        tokens: int | None = None,
        cached_tokens: int | None = None,
        requests: int | None = None,
    ) -> FocusRow:
        """One row."""
        names = self._names
        cost = Decimal(amount.nano_usd) * self._per_nano_usd
        start, end = period_bounds(key.start_utc_s, self._period, self._zone)
        first, last = period_bounds(start, "month", self._zone)
        team = None if key.tenant is None else self._team_of.get(key.tenant)
        of_whom = "" if key.tenant is None else f" of {key.tenant}, model {key.model}"
        gpu = key.gpu or "GPU"
        return FocusRow(
            BilledCost=cost,
            BillingAccountId=names.billing_account_id,
            BillingAccountName=names.billing_account_name,
            BillingCurrency=self._currency,
            BillingPeriodEnd=_utc(last),
            BillingPeriodStart=_utc(first),
            ChargeDescription=f"{gpu} time for {_KIND_TEXT[kind]}{of_whom}",
            ChargePeriodEnd=_utc(end),
            ChargePeriodStart=_utc(start),
            ConsumedQuantity=None if tokens is None else Decimal(tokens),
            ConsumedUnit=None if tokens is None else _TOKENS[kind],
            ContractedCost=cost,
            EffectiveCost=cost,
            InvoiceIssuerName=names.provider,
            ListCost=cost,
            PricingQuantity=Decimal(amount.gpu_ns) / _NANO,
            ProviderName=names.provider,
            PublisherName=names.provider,
            ResourceId=key.replica,
            ResourceName=key.replica,
            ServiceName=names.service,
            SkuId=f"{gpu}/{kind}",
            SubAccountId=key.tenant,
            SubAccountName=key.tenant,
            SubAccountType=None if key.tenant is None else "Tenant",
            Tags=_tags(key.labels, team),
            x_Adapter=key.adapter or None,
            x_ApiKeyName=key.key or None,
            x_CachedTokens=cached_tokens,
            x_GpuNanoseconds=amount.gpu_ns,
            x_GpuName=key.gpu or None,
            x_Model=key.model or None,
            x_PriceSource=key.source,
            x_Requests=requests,
            x_Team=team,
            x_UseKind=kind,
        )


def _tags(labels: str, team: str | None) -> str:
    """A JSON object, as the specification wants tags."""
    tags = {}
    if labels and labels != MORE:
        tags = dict(pair.partition("=")[::2] for pair in labels.split(","))
    if team is not None:
        tags.setdefault("team", team)
    return msgspec.json.encode(tags, order="sorted").decode()


def _utc(at_utc_s: int) -> str:
    return local_time(at_utc_s, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
