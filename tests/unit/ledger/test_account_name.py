"""AccountNames: what may be asked for, and that no two things have one name."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from mileage.core.errors import ConfigError
from mileage.ledger.account_name import (
    ACCOUNTS,
    LASTING_ACCOUNTS,
    MORE,
    AccountNames,
    booked_text,
    is_own,
)
from mileage.ledger.usage_row import UsageRow
from tests.support.usage_rows import usage

LIKE_OURS = ("(more)", "\\(more)", "\\\\(more)", "(no model)", "\\", "(", "more", "a(more)")


def row(**texts: Any) -> UsageRow:
    """A row with these texts."""
    return usage(**texts)


@pytest.mark.parametrize("group", ["model", "adapter", "key"])
def test_no_text_of_a_client_has_the_name_of_another_or_of_what_is_folded(group: str) -> None:
    names = AccountNames(group, dt.UTC)
    found = [names.of(row(**{group: booked_text(text)})) for text in LIKE_OURS]
    folded = names.of(row(**{group: MORE}))
    assert len({*found, folded, names.of(row(**{group: ""}))}) == len(LIKE_OURS) + 2
    assert (folded, is_own(folded)) == (MORE, False)
    assert all(map(is_own, found))
    assert found[0] == "\\(more)"


def test_a_tenant_is_never_folded() -> None:
    assert AccountNames("tenant", dt.UTC).of(usage(tenant=MORE)) == "\\(more)"
    assert AccountNames("label:job", dt.UTC).of(usage(labels="job=(more)")) == "\\(more)"
    assert AccountNames("label:job", dt.UTC).of(usage(labels=MORE)) == MORE


@pytest.mark.parametrize("by", ["request", "nope", "label", "label:", "tenant:x", "", "day "])
def test_what_is_no_account_is_refused_with_what_there_is(by: str) -> None:
    with pytest.raises(ConfigError) as refused:
        AccountNames(by, dt.UTC, key="by")
    assert refused.value.key == "by"
    assert refused.value.expected == f"one of {', '.join(ACCOUNTS)}"


def test_fewer_may_be_allowed() -> None:
    assert AccountNames("label:job", dt.UTC, accounts=LASTING_ACCOUNTS).group == "label"
    with pytest.raises(ConfigError, match=r"label:NAME$"):
        AccountNames("hour", dt.UTC, accounts=LASTING_ACCOUNTS)
