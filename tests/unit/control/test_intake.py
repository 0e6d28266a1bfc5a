"""What requests pay that share a generation, also where limits come or go while it runs."""

from __future__ import annotations

import msgspec
import pytest

from mileage.control.config import ControlConfig, GovernorConfig
from mileage.core.actions import Join
from mileage.core.events import Arrived, ConfigChanged, Finished
from mileage.policy.tenants import TenantLimits
from tests.support.controllers import controller, request

LIMITED = {"acme": TenantLimits(tokens_per_min=1_000_000, concurrency_max=10)}


def settings(tenants: dict[str, TenantLimits]) -> str:
    config = ControlConfig(governor=GovernorConfig(policy="static"), tenants=tenants)
    return msgspec.json.encode(config).decode()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param({}, LIMITED, id="limits come"),
        pytest.param(LIMITED, {}, id="limits go"),
        pytest.param(LIMITED, LIMITED, id="they stay"),
    ],
)
def test_all_that_share_a_generation_pay_alike(
    before: dict[str, TenantLimits], after: dict[str, TenantLimits]
) -> None:
    made = controller("a", governor=GovernorConfig(policy="static"), tenants=before)
    made.handle(Arrived(request(1, merge_key="k")), 0.0)
    made.handle(ConfigChanged(2, settings(after)), 0.5)
    joined = made.handle(Arrived(request(2, merge_key="k", arrived_s=0.6)), 0.6)
    assert Join(2, 1, "same") in joined
    made.handle(Finished(1, 10, 0, 6), 2.0)
    spends = [made.intake.take_spend(number) for number in (1, 2)]
    assert [spend and spend.tokens for spend in spends] == [8, 8]
    assert [spend and spend.gpu_ns for spend in spends] == [1_000_000_000] * 2
