"""Invalidations: those that hold a block are told, all of them, and no others."""

from __future__ import annotations

from random import Random

import pytest

from mileage.sim.invalidation import InvalidationTotals, invalidations
from mileage.workload.synthetic.config import ConversationsConfig, SyntheticConfig
from mileage.workload.synthetic.generator import generate
from mileage.workload.synthetic.lengths import LognormalLength


def run(*, by_prefix: bool, replicas: int = 8) -> InvalidationTotals:
    config = SyntheticConfig(
        rate_rps=5.0,
        requests=600,
        seed=2,
        block_tokens=64,
        prompt=LognormalLength(median=400, sigma=0.5),
        conversations=ConversationsConfig(turns=5, think_s=10),
    )
    return invalidations(
        generate(config),
        replicas=replicas,
        blocks_max=400,
        every=5,
        by_prefix=by_prefix,
        random=Random(4),
    )


@pytest.mark.parametrize("by_prefix", [True, False])
def test_holders_are_fewer_than_all(by_prefix: bool) -> None:
    totals = run(by_prefix=by_prefix)
    assert totals.invalidations == 120
    assert totals.blocks > 100
    assert totals.broadcast_messages == 8 * 120
    assert 0 < totals.holder_messages < totals.broadcast_messages / 2
    assert totals.holder_bytes < totals.broadcast_bytes / 4


def test_where_prompts_stay_together_fewer_are_told() -> None:
    assert run(by_prefix=True).holder_messages < run(by_prefix=False).holder_messages


def test_a_lone_replica_is_told_what_it_holds_only() -> None:
    totals = run(by_prefix=True, replicas=1)
    assert totals.holder_messages <= totals.broadcast_messages
    assert totals.holder_bytes < totals.broadcast_bytes
