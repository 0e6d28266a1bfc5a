"""How limits are divided between workers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mileage.control.shares import Shares


def test_one_worker_has_all() -> None:
    assert Shares[int]().update({7: 3}) == {7: pytest.approx(1.0)}


def test_idle_workers_have_equal_shares() -> None:
    assert Shares[int]().update({1: 0, 2: 0}) == {1: 0.5, 2: 0.5}


def test_a_busy_worker_gets_more_and_an_idle_one_keeps_some() -> None:
    shares = Shares[int]()
    told = shares.update({1: 100, 2: 0})
    for _ in range(10):
        told = shares.update({1: 100, 2: 0}) or told
    assert told[1] == pytest.approx(0.85, abs=0.01)
    assert told[2] == pytest.approx(0.15, abs=0.01)


def test_small_changes_are_not_told() -> None:
    shares = Shares[int]()
    shares.update({1: 100, 2: 100})
    assert shares.update({1: 103, 2: 99}) == {}
    assert shares.update({1: 103}) == {1: pytest.approx(1.0)}


@given(st.lists(st.dictionaries(st.integers(0, 5), st.integers(0, 10_000), min_size=1)))
def test_shares_sum_to_one(rounds: list[dict[int, int]]) -> None:
    shares = Shares[int]()
    for requests in rounds:
        told = shares.update(requests)
        if told:
            assert told.keys() == requests.keys()
            assert sum(told.values()) == pytest.approx(1.0)
            assert min(told.values()) > 0
