"""Two arms, one with a setting and one without: which are compared, and what else differs."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.doctor.contrast import Contrast, contrasts, differing, slowest
from mileage.doctor.evidence import Evidence
from mileage.doctor.facts import decode_facts


def pairs(*arms: dict[str, Any], restarted: bool | None = None) -> tuple[Contrast, ...]:
    document = {
        "comparisons": [
            {
                "arms": [{"arm": str(n)} | arm for n, arm in enumerate(arms)],
                **({} if restarted is None else {"restarted_between_arms": restarted}),
            }
        ]
    }
    return contrasts(
        Evidence(decode_facts(document)),
        lambda arm: arm.get("enforce_eager") is True,
        lambda arm: arm.get("enforce_eager") is False,
        "enforce_eager",
    )


def arm(eager: bool, rate: float, **rest: Any) -> dict[str, Any]:
    settings = {"enforce_eager": eager, **rest.pop("settings", {})}
    return {"settings": settings, "signals": {"output_tokens_per_s": rate}, **rest}


@pytest.mark.parametrize(
    ("arms", "names"),
    [
        pytest.param((arm(True, 1), arm(False, 2)), [("0", "1")], id="the one that has it first"),
        pytest.param((arm(False, 2), arm(True, 1)), [("1", "0")], id="in either order"),
        pytest.param(
            (arm(True, 1, current=True), arm(False, 2), arm(True, 3)),
            [("0", "1")],
            id="the current arm alone where one is marked",
        ),
        pytest.param(
            (arm(True, 1), arm(False, 2, current=True)), [], id="none where the current has it not"
        ),
        pytest.param((arm(True, 1), arm(True, 2)), [], id="none where all have it"),
        pytest.param(
            (arm(True, 1), arm(True, 2), arm(False, 3)),
            [("0", "2"), ("1", "2")],
            id="each of several",
        ),
    ],
)
def test_which_are_compared(arms: tuple[dict[str, Any], ...], names: list[tuple[str, str]]) -> None:
    assert [(pair.one.name, pair.other.name) for pair in pairs(*arms)] == names


def test_what_else_differs_is_told_and_the_thing_itself_is_not() -> None:
    (pair,) = pairs(
        arm(True, 1, settings={"block_size": 16}, engine={"version": "1"}),
        arm(False, 2, settings={"block_size": 16}, engine={"version": "2"}),
    )
    assert pair.besides == {"engine.version"}
    assert pair.clean().truth is False


def test_a_fact_that_one_arm_does_not_tell_is_no_difference() -> None:
    (pair,) = pairs(arm(True, 1, settings={"block_size": 16}), arm(False, 2))
    assert pair.besides == frozenset()
    assert differing(pair.one, pair.other) == {"enforce_eager"}


def test_a_restart_between_arms_is_not_clean() -> None:
    (pair,) = pairs(arm(True, 1), arm(False, 2), restarted=True)
    assert pair.clean().truth is False


def test_the_slowest_is_of_arms_that_differ_in_nothing_else() -> None:
    found = slowest(
        pairs(
            arm(True, 100, workload={"concurrency": 8}),
            arm(False, 110, workload={"concurrency": 8}),
            arm(True, 500, workload={"concurrency": 64}),
            arm(False, 900, workload={"concurrency": 64}),
        )
    )
    assert found is not None
    assert (found.one.name, found.other.name) == ("2", "3")


def test_where_all_differ_in_more_the_slowest_of_all_is_left() -> None:
    found = slowest(
        pairs(
            arm(True, 100, workload={"concurrency": 8}),
            arm(False, 200, workload={"concurrency": 9}),
        )
    )
    assert found is not None
    assert found.speed.value.low == 0.5


def test_no_signal_in_common_tells_no_speed() -> None:
    one, other = arm(True, 1), arm(False, 2)
    other["signals"] = {"kv_cache_usage_ratio": 0.5}
    (pair,) = pairs(one, other)
    assert slowest((pair,)) is None
    assert not pair.speed.known
    assert not pair.ratio_of("ttft_mean_s", "itl_mean_s").known
