"""What the options of mileage bench ab mean: its arms, slots, looks and switch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mileage.cli.bench_ab_arguments import AbArguments
from mileage.cli.bench_ab_plan import AbPlan, ab_plan, settings_of
from mileage.core.errors import ConfigError
from mileage.loadgen.arms_switch import CommandSwitch, ControlSwitch

A, B = "http://gpu1:8000", "http://gpu2:8000"


def plan(a: str = A, b: str | None = B, **options: Any) -> AbPlan:
    load: dict[str, Any] = {} if {"rate", "concurrency"} & options.keys() else {"rate": 8.0}
    return ab_plan(AbArguments(a=a, b=b, **load, **options))


@pytest.mark.parametrize(
    ("a", "b", "options", "mode", "sharing"),
    [
        pytest.param(A, B, {}, "mirrored", "nothing", id="two hosts"),
        pytest.param(A, B, {"mode": "interleaved"}, "interleaved", "nothing", id="as it is said"),
        pytest.param(A, "http://gpu1:9", {}, "interleaved", "machine", id="two ports of a host"),
        pytest.param(
            "http://127.0.0.1:1", "http://localhost:2", {}, "interleaved", "machine", id="this host"
        ),
        pytest.param(A, A, {}, "interleaved", "endpoint", id="one endpoint twice: an A/A run"),
        pytest.param(A, B, {"concurrency": 4}, "interleaved", "nothing", id="a closed loop"),
        pytest.param(A, B, {"command_a": "true"}, "interleaved", "nothing", id="a switch"),
    ],
)
def test_arms_take_turns_unless_each_has_all_of_its_host(
    a: str, b: str, options: dict[str, Any], mode: str, sharing: str
) -> None:
    found = plan(a, b, **options)
    assert (found.mode, found.sharing) == (mode, sharing)
    assert found.share_cache == (sharing == "endpoint")


@pytest.mark.parametrize(
    ("options", "wash_out_s", "measured_s", "pairs"),
    [
        pytest.param({}, 5.0, 25.0, 30, id="mirrored: a slot a pair"),
        pytest.param({"mode": "interleaved"}, 5.0, 25.0, 15, id="interleaved: two of them"),
        pytest.param({"slot": "6s"}, 1.0, 5.0, 150, id="a short slot has a short wash-out"),
        pytest.param({"wash_out": "0s"}, 0.0, 30.0, 30, id="no wash-out"),
        pytest.param({"max_duration": "2m"}, 5.0, 25.0, 4, id="time for four pairs"),
    ],
)
def test_slots_of_an_open_loop_are_times(
    options: dict[str, Any], wash_out_s: float, measured_s: float, pairs: int
) -> None:
    found = plan(**options)
    assert (found.load.warmup_s, found.load.duration_s) == (wash_out_s, measured_s)
    assert found.plan.blocks_max == pairs
    assert found.plan.blocks_first == min(8, pairs)
    assert (found.slot_requests, found.wash_out_requests) == (None, 0)


@pytest.mark.parametrize(
    ("options", "requests", "wash_out"),
    [
        pytest.param({"concurrency": 4}, 80, 8, id="20 for each client, a tenth of them wash-out"),
        pytest.param({"concurrency": 4, "slot_requests": 500}, 500, 50, id="as many as are said"),
        pytest.param({"concurrency": 4, "slot_requests": 8}, 8, 4, id="one for each client"),
    ],
)
def test_slots_of_a_closed_loop_are_requests(
    options: dict[str, Any], requests: int, wash_out: int
) -> None:
    found = plan(**options)
    assert (found.slot_requests, found.wash_out_requests) == (requests, wash_out)
    assert (found.load.mode, found.load.warmup_s, found.load.duration_s) == ("closed", 0.0, None)


@pytest.mark.parametrize(
    ("options", "key"),
    [
        pytest.param({"wash_out": "30s"}, "--wash-out", id="nothing but wash-out"),
        pytest.param({"concurrency": 4, "wash_out": "1s"}, "--wash-out", id="of a closed loop"),
        pytest.param(
            {"concurrency": 4, "slot_requests": 7}, "--slot-requests", id="less than two a client"
        ),
        pytest.param({"slot_requests": 80}, "--slot-requests", id="requests of an open loop"),
        pytest.param({"concurrency": 4, "mode": "mirrored"}, "--mode", id="clients of two arms"),
        pytest.param({"mode": "both"}, "--mode", id="a mode that is none"),
        pytest.param({"a": B, "mode": "mirrored"}, "--mode", id="one endpoint at once"),
        pytest.param({"b": None}, "B", id="one arm"),
        pytest.param({"max_duration": "1m"}, "--max-duration", id="no time for four pairs"),
        pytest.param({"effect": 0.0}, "--effect", id="no effect at all"),
        pytest.param({"power": 0.3}, "--power", id="a power that is none"),
        pytest.param({"alpha": 0.9}, "--alpha", id="a level that is none"),
        pytest.param({"duration": "5s"}, "--duration", id="the time of one run"),
        pytest.param({"ramp": "1:2:3s"}, "--ramp", id="a load that changes"),
        pytest.param({"metric": ["memory"]}, "--metric", id="a metric that is none"),
        pytest.param({"price_b": -1.0}, "--price-b", id="a price below zero"),
        pytest.param({"set_a": ["governor"]}, "--set-a", id="no setting"),
        pytest.param(
            {"set_a": ["a.b=1"], "command_a": "true"}, "--command-a", id="two ways to switch"
        ),
        pytest.param({"set_a": ["a.b=1"], "set_b": ["a.b=1"]}, "--set-b", id="equal settings"),
    ],
)
def test_what_cannot_be_is_told_by_option(options: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        plan(**options)
    assert caught.value.key == key


def test_settings_are_json_or_text() -> None:
    texts = ["governor.mode=off", "a.b=12", "a.c=[1, 2]", 'a.d="x"', "a.e=x=y", "a.f="]
    assert settings_of(texts, "--set-a") == {
        "governor.mode": "off",
        "a.b": 12,
        "a.c": [1, 2],
        "a.d": "x",
        "a.e": "x=y",
        "a.f": "",
    }


def test_settings_are_switched_by_the_admin_plane_and_named_in_the_result(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    token.chmod(0o600)
    found = plan(b=None, set_b=["governor.mode=act"], admin_token_file=token)
    assert isinstance(found.switch, ControlSwitch)
    assert (found.a.settings, found.b.settings) == ({}, {"governor.mode": "act"})
    assert (found.sharing, found.mode) == ("endpoint", "interleaved")


def test_commands_switch_and_are_named_in_the_result() -> None:
    found = plan(
        b=None, command_a="./start.sh 1", command_b="./start.sh 2", command_end="./stop.sh"
    )
    assert isinstance(found.switch, CommandSwitch)
    assert found.a.settings == {"command": "./start.sh 1"}
    assert found.b.settings == {"command": "./start.sh 2"}


def test_an_arm_b_that_costs_something_else_has_its_own_price() -> None:
    found = plan(price=2.0, gpus=4, price_b=3.0)
    assert (found.a.usd_per_hour, found.b.usd_per_hour) == (8.0, 12.0)
    found = plan(price=2.0, gpus=4, gpus_b=1)
    assert (found.a.usd_per_hour, found.b.usd_per_hour) == (8.0, 2.0)
    found = plan()
    assert found.a.usd_per_hour is None


def test_each_arm_has_its_engines_and_gpus() -> None:
    found = plan(engine_url=["http://e:1"], gpu_id=["0"], gpu_id_b=["1"])
    assert found.a.use.engine_urls == ("http://e:1",) == found.b.use.engine_urls
    assert (found.a.use.gpu_ids, found.b.use.gpu_ids) == (("0",), ("1",))


def test_text_in_both_arms_differs_where_they_share_a_cache() -> None:
    assert plan(A, A).share_cache
    assert not plan(A, A, same_prompts=True).share_cache
    assert not plan().share_cache
