"""AccountNames: which account a row of usage is booked to, and names that nobody else can have."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from mileage.core.errors import ConfigError
from mileage.ledger.calendar import period_name
from mileage.ledger.usage_row import UsageRow

__all__ = [
    "ACCOUNTS",
    "LASTING_ACCOUNTS",
    "MORE",
    "OTHERS",
    "RESERVED",
    "UNATTRIBUTED",
    "WARM_UP",
    "AccountNames",
    "booked_text",
    "is_own",
    "own_name",
]

WARM_UP: Final = "(warm-up)"
"""GPUs that were loading a model."""
OTHERS: Final = "(others)"
"""All accounts beyond those that were asked for."""
RESERVED: Final = "(reserved, not used)"
"""Idle time that reservations pay for, where accounts are not those of tenants."""
MORE: Final = "(more)"
"""As the ledger calls what it books together where an hour has too many different texts."""
UNATTRIBUTED: Final = "(unattributed)"
"""GPU time that the ledger has on record as capacity and as nobody's: `mileage cost verify`."""

Group = Literal[
    "tenant", "team", "model", "adapter", "key", "replica", "label", "hour", "day", "month"
]
LASTING_ACCOUNTS: Final = ("tenant", "team", "model", "adapter", "key", "replica", "label:NAME")
"""What accounts may be of that go on from one hour to the next."""
ACCOUNTS: Final = (*LASTING_ACCOUNTS, "hour", "day", "month")
"""What accounts may be of."""
_FOLDED: Final = ("model", "adapter", "key")
_LIKE_MORE: Final = re.compile(r"\\*\(more\)")
_TIMES: Final = ("hour", "day", "month")


class AccountNames:
    """Names the account of each row, by one of its texts, or by its hour.

    Names of our own stand in parentheses: (no adapter). A tenant's, key's or model's name that
    begins with one, or with a backslash, gets a backslash before it, so that two different things
    never have one name.

    `by` is one of `accounts`; ConfigError, which names them, for another. `team_of`: tenant ->
    team.
    """

    def __init__(
        self,
        by: str,
        zone: dt.tzinfo,
        team_of: Mapping[str, str] | None = None,
        key: str = "--by",
        accounts: Sequence[str] = ACCOUNTS,
    ) -> None:
        group, _, label = by.partition(":")
        if by not in accounts and not (group == "label" and label):
            raise ConfigError(key, by, f"one of {', '.join(accounts)}")
        self.group = group
        self._label, self._zone, self._team_of = label, zone, team_of or {}
        self._periods: dict[int, str] = {}
        self._labels: dict[str, str] = {}

    @property
    def by_time(self) -> bool:
        """Whether accounts are hours, days or months."""
        return self.group in _TIMES

    @property
    def texts(self) -> tuple[str, ...]:
        """Texts of a row that its account is told by; with the model, by which idle time is
        spread."""
        field = {"team": "tenant", "label": "labels"}.get(self.group, self.group)
        own = field in ("tenant", "adapter", "key", "labels")
        return (field, "model") if own else ("model",)

    def of(self, row: UsageRow) -> str:
        """The account of the row."""
        group = self.group
        if group == "tenant":
            return own_name(row.tenant, "tenant")
        if group in _TIMES:
            return self.of_hour(row.hour_at_utc_s)
        if group == "team":
            return self._team(row.tenant)
        if group == "label":
            return self._of_labels(row.labels)
        text = getattr(row, group)
        if group in _FOLDED and _LIKE_MORE.fullmatch(text):
            return str(text)  # ours, or one that has its backslash already: see booked_text
        return own_name(text, group)

    def of_hour(self, hour_at_utc_s: int) -> str:
        """The period that the hour begins in; empty where accounts are not periods."""
        if not self.by_time:
            return ""
        name = self._periods.get(hour_at_utc_s)
        if name is None:
            name = period_name(hour_at_utc_s, self.group, self._zone)  # type: ignore[arg-type]
            self._periods[hour_at_utc_s] = name
        return name

    def of_tenant(self, tenant: str, hour_at_utc_s: int) -> str:
        """The account that pays for what a tenant did not use."""
        if self.group == "tenant":
            return own_name(tenant, "tenant")
        if self.group == "team":
            return self._team(tenant)
        return self.of_hour(hour_at_utc_s) or RESERVED

    def _team(self, tenant: str) -> str:
        return own_name(self._team_of.get(tenant, ""), "team")

    def _of_labels(self, labels: str) -> str:
        name = self._labels.get(labels)
        if name is None:
            if labels == MORE:
                return MORE
            pairs = dict(pair.partition("=")[::2] for pair in labels.split(","))
            name = self._labels[labels] = own_name(pairs.get(self._label, ""), self._label)
        return name


def booked_text(text: str) -> str:
    """The model, adapter or key under which a request is booked: MORE is the ledger's own word, so
    a name of a client's that is the same has a backslash before it, in the books already."""
    return f"\\{text}" if text.endswith(MORE) and _LIKE_MORE.fullmatch(text) else text


def own_name(text: str, what: str) -> str:
    """The name of an account for a text of clients' or of the configuration."""
    if not text:
        return f"(no {what})"
    return f"\\{text}" if text[0] in "(\\" else text


def is_own(name: str) -> bool:
    """Whether the account is a tenant's, a model's and so on: not one of ours."""
    return not name.startswith("(")
