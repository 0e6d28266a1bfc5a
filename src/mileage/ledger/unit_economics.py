"""Unit economics: what an answer of each model costs, with its errors and the people who check."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from mileage.core.bounds import require_range
from mileage.core.errors import ConfigError
from mileage.ledger.bill import Account

__all__ = ["EconomicsFile", "ModelEconomics", "ModelFacts", "facts_with", "unit_economics"]

_NS_PER_DAY = 86_400e9
_USD_MAX = 1e6


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the ledger cannot know of a model: section `[models.NAME]` of a file of facts."""

    accuracy_ratio: float | None = None
    """Answers that are right, of all: HumanEval pass@1, say, or a measure of one's own."""
    review_ratio: float | None = None
    """Answers that a person looks at, of all."""
    review_usd: float | None = None
    """What one such look costs; None: that of the whole file."""
    usd_per_request: float | None = None
    """What a request costs elsewhere, for a model that the ledger does not have."""

    def __post_init__(self) -> None:
        for field in ("accuracy_ratio", "review_ratio"):
            if (value := getattr(self, field)) is not None:
                require_range(f"models.*.{field}", value, 0.0, 1.0)
        for field in ("review_usd", "usd_per_request"):
            if (value := getattr(self, field)) is not None:
                require_range(f"models.*.{field}", value, 0.0, _USD_MAX)


class EconomicsFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of facts about models."""

    baseline: str | None = None
    """The model that others are compared with; None: the one with most requests."""
    accuracy_of: str = "accuracy"
    """What accuracy is measured by, as `HumanEval pass@1`."""
    review_usd: float | None = None
    """What a look of a person at one answer costs."""
    models: dict[str, ModelFacts] = {}

    def __post_init__(self) -> None:
        if self.review_usd is not None:
            require_range("review_usd", self.review_usd, 0.0, _USD_MAX)


class ModelEconomics(msgspec.Struct, frozen=True, kw_only=True):
    """One model. What is not known is None, and so is all that would follow from it.

    `usd_per_request` is of requests that were answered, with what failed ones and idle time cost;
    `use_usd_per_request` leaves idle time out. `usd_per_answer` adds the people:
    usd_per_request + review_ratio * review_usd. `usd_per_correct_answer` is that by accuracy.
    `requests_per_gpu_day` is per card and day, idle time included; `..._busy` while it works.
    `cost_ratio` is usd_per_correct_answer (without accuracies usd_per_answer) by the baseline's.
    """

    model: str
    requests: int
    accuracy_ratio: float | None
    review_ratio: float | None
    usd_per_request: float | None
    use_usd_per_request: float | None
    review_usd_per_request: float | None
    usd_per_answer: float | None
    usd_per_correct_answer: float | None
    requests_per_gpu_day: float | None
    requests_per_gpu_day_busy: float | None
    cost_ratio: float | None = None


def unit_economics(
    accounts: Iterable[Account], facts: EconomicsFile, *, baseline: str | None = None
) -> tuple[str | None, list[ModelEconomics]]:
    """The baseline's name and a row per model: of the ledger's accounts by model, to which idle
    time was spread by use, and of models that are only in the facts.

    `baseline` goes before that of the facts. ConfigError for one that is no model here.
    """
    own = {account.name: account for account in accounts if account.own}
    rows = [_row(name, own.get(name), facts) for name in {**own, **facts.models}]
    rows.sort(key=lambda row: (-row.requests, row.model))
    name = baseline or facts.baseline or (rows[0].model if rows else None)
    if name is None:
        return None, rows
    base = next((row for row in rows if row.model == name), None)
    if base is None:
        known = ", ".join(row.model for row in rows) or "none"
        raise ConfigError("baseline", name, f"a model of the ledger or of the facts: {known}")
    return name, [msgspec.structs.replace(row, cost_ratio=_against(row, base)) for row in rows]


def _row(name: str, account: Account | None, facts: EconomicsFile) -> ModelEconomics:
    own = facts.models.get(name, ModelFacts())
    answered = 0 if account is None else account.use.requests - account.use.requests_failed
    usd, use_usd = own.usd_per_request, None
    per_day = per_day_busy = None
    if account is not None and answered > 0:
        usd = _per(account.total.whole_nano_usd, answered)
        use_usd = _per(account.use.whole_nano_usd, answered)
        if account.use.gpu_ns:
            per_day = answered / (account.total.gpu_ns / _NS_PER_DAY)
            per_day_busy = answered / (account.use.gpu_ns / _NS_PER_DAY)
    look_usd = own.review_usd if own.review_usd is not None else facts.review_usd
    review_usd = None
    if own.review_ratio is not None:
        if look_usd is not None:
            review_usd = own.review_ratio * look_usd
        elif own.review_ratio == 0.0:
            review_usd = 0.0
    # Without a word about reviews there are none; with half of it the sum is not known.
    people = review_usd if own.review_ratio is not None else 0.0
    per_answer = None if usd is None or people is None else usd + people
    accuracy = own.accuracy_ratio
    return ModelEconomics(
        model=name,
        requests=0 if account is None else account.use.requests,
        accuracy_ratio=accuracy,
        review_ratio=own.review_ratio,
        usd_per_request=usd,
        use_usd_per_request=use_usd,
        review_usd_per_request=review_usd,
        usd_per_answer=per_answer,
        usd_per_correct_answer=None
        if per_answer is None or not accuracy
        else per_answer / accuracy,
        requests_per_gpu_day=per_day,
        requests_per_gpu_day_busy=per_day_busy,
    )


def _per(nano_usd: int | None, answered: int) -> float | None:
    return None if nano_usd is None else nano_usd / answered / 1e9


def _against(row: ModelEconomics, base: ModelEconomics) -> float | None:
    pairs = (
        (row.usd_per_correct_answer, base.usd_per_correct_answer),
        (row.usd_per_answer, base.usd_per_answer),
    )
    known = base.accuracy_ratio is not None and row.accuracy_ratio is not None
    own, other = pairs[0] if known else pairs[1]
    return own / other if own is not None and other else None


def facts_with(file: EconomicsFile, options: Mapping[str, Mapping[str, float]]) -> EconomicsFile:
    """The facts with what options say of models: field -> model -> value."""
    models = dict(file.models)
    for field, values in options.items():
        for name, value in values.items():
            models[name] = msgspec.structs.replace(models.get(name, ModelFacts()), **{field: value})
    return msgspec.structs.replace(file, models=models)
