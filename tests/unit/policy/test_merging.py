"""Which requests share a generation, and when that one is over."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.core.errors import ConfigError
from mileage.policy.merging import MergeIndex, MergingConfig
from tests.support.controllers import request


def index(*, leaders_max: int = 100, members_max: int = 100, **config: Any) -> MergeIndex:
    return MergeIndex(MergingConfig(**config), leaders_max=leaders_max, members_max=members_max)


def test_a_request_finds_the_generation_that_an_equal_one_began() -> None:
    merging = index()
    merging.lead(request(1, merge_key="k"))

    assert merging.find(request(2, merge_key="k")) == 1
    assert merging.find(request(3, merge_key="other")) is None


@pytest.mark.parametrize(
    ("config", "leader", "other"),
    [
        pytest.param({}, {"merge_key": None}, {"merge_key": None}, id="neither has a key"),
        pytest.param({}, {"merge_key": "k"}, {"merge_key": None}, id="the later one has no key"),
        pytest.param(
            {"enabled": False}, {"merge_key": "k"}, {"merge_key": "k"}, id="merging is off"
        ),
        pytest.param(
            {},
            {"merge_key": "k", "tenant": "acme"},
            {"merge_key": "k", "tenant": "umbrella"},
            id="they are of two tenants",
        ),
    ],
)
def test_what_is_not_shared(
    config: dict[str, Any], leader: dict[str, Any], other: dict[str, Any]
) -> None:
    merging = index(**config)
    merging.lead(request(1, **leader))

    assert merging.find(request(2, **other)) is None


def test_tenants_share_where_the_operator_says_so() -> None:
    merging = index(across_tenants=True)
    merging.lead(request(1, merge_key="k", tenant="acme"))

    assert merging.find(request(2, merge_key="k", tenant="umbrella")) == 1


def test_a_request_that_shares_nothing_is_the_last_to_leave() -> None:
    merging = index()
    merging.lead(request(1, merge_key="k"))

    assert merging.leave(1)
    assert merging.leave(99)
    assert merging.find(request(2, merge_key="k")) is None


def test_a_generation_ends_when_its_last_member_leaves() -> None:
    merging = index()
    merging.lead(request(1, merge_key="k"))
    merging.join(2, 1)
    merging.join(3, 1)

    assert [merging.leave(1), merging.leave(3)] == [False, False]
    assert merging.members(1) == (2,)
    assert merging.leader_of(2) == 1
    assert merging.leave(2)
    assert merging.find(request(4, merge_key="k")) is None


def test_a_generation_takes_joiners_after_its_leader_has_left() -> None:
    merging = index()
    merging.lead(request(1, merge_key="k"))
    merging.join(2, 1)
    merging.leave(1)

    leader = merging.find(request(3, merge_key="k"))
    assert leader == 1
    merging.join(3, 1)
    assert merging.ended(1) == (2, 3)


def test_what_has_ended_is_forgotten_with_all_its_members() -> None:
    merging = index()
    merging.lead(request(1, merge_key="k"))
    merging.join(2, 1)

    assert merging.ended(1) == (1, 2)
    assert merging.find(request(3, merge_key="k")) is None
    assert merging.leader_of(2) == 2
    assert merging.ended(1) == (1,)


def test_members_of_a_batch_are_kept_without_a_merge_key() -> None:
    merging = index()
    merging.lead(request(1))
    merging.join(2, 1)

    assert merging.members(1) == (1, 2)
    assert not merging.leave(1)
    assert merging.leave(2)


def test_the_first_of_two_generations_with_one_key_is_the_one_that_is_joined() -> None:
    """As when the second had begun because the first took no more members."""
    merging = index()
    merging.lead(request(1, merge_key="k"))
    merging.lead(request(2, merge_key="k"))

    assert merging.leave(2)
    assert merging.find(request(3, merge_key="k")) == 1


def test_past_its_bounds_nothing_more_is_shared() -> None:
    merging = index(leaders_max=1, members_max=3)
    merging.lead(request(1, merge_key="a"))
    merging.lead(request(2, merge_key="b"))
    assert merging.find(request(3, merge_key="b")) is None

    merging.join(4, 1)
    merging.join(5, 1)
    assert merging.find(request(6, merge_key="a")) is None
    merging.leave(5)
    assert merging.find(request(6, merge_key="a")) == 1


@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param("buffer_bytes_max", 100, id="a buffer that holds no event"),
        pytest.param("batch_window_max_s", 0.011, id="a window above 10 ms"),
        pytest.param("batch_load_min", -1, id="a negative load"),
        pytest.param("batch_items_max", 1, id="a batch of one"),
    ],
)
def test_bad_configuration_names_its_key(key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"merging.{key}"):
        MergingConfig(**{key: value})
