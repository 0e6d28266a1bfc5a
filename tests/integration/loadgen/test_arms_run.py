"""A/B runs against engines on loopback whose delays are known."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mileage.core.errors import EngineError
from mileage.core.slo import Slo
from mileage.loadgen.arms_pooled import pooled_figures
from mileage.loadgen.arms_result import Judge
from mileage.loadgen.arms_run import ArmsOptions, ArmsRun, run_arms
from mileage.loadgen.arms_slots import Arm, ArmCalls, Mode, Portions
from mileage.loadgen.arms_switch import CommandSwitch
from mileage.loadgen.plan_options import PlanOptions
from mileage.loadgen.run_options import RunOptions
from mileage.loadgen.target import Target
from mileage.measure.ab_test import AbResult
from mileage.measure.sequential import SequentialPlan
from mileage.measure.server_use import ServerUse
from mileage.workload.trace_request import TraceRequest
from tests.support.engine import Behaviour, ScriptedEngine

SLOW_S = 0.03
RATE = 40
PLAN = SequentialPlan(blocks_first=4, blocks_max=6, blocks_between=1, alpha=0.001)
"""A level at which noise of a busy machine makes no difference."""


@pytest.fixture(autouse=True)
def _never_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """How late this machine's cores are is not what is tested."""
    monkeypatch.setattr("mileage.loadgen.generator_gauge.limit_reason", lambda *a, **k: None)


def replies(delay_s: float, **more: Any) -> Behaviour:
    return Behaviour(tokens=3, first_token_s=delay_s, token_s=delay_s / 10, **more)


@contextlib.contextmanager
def engines(a: Behaviour, b: Behaviour) -> Iterator[tuple[ScriptedEngine, ScriptedEngine]]:
    with ScriptedEngine() as first, ScriptedEngine() as second:
        first.behaviour, second.behaviour = a, b
        yield first, second


def workload() -> list[TraceRequest]:
    return [
        TraceRequest(arrived_s=i / RATE, prompt_tokens=20, output_tokens=3) for i in range(1000)
    ]


class Told(list[str]):
    """A switch that notes what it is asked."""

    def __init__(self, fails_at: int | None = None, restores: bool = True) -> None:
        super().__init__()
        self.fails_at, self.restores = fails_at, restores

    async def to(self, arm: Arm) -> str:
        self.append(arm)
        if len(self) == self.fails_at:
            raise EngineError("switch", "did not take")
        return f"settings {arm}"

    async def restore(self) -> None:
        self.append("restored")
        if not self.restores:
            raise EngineError("switch", "is stuck")


def compared(
    a: ScriptedEngine,
    b: ScriptedEngine,
    *,
    mode: Mode = "interleaved",
    pairs: int = 6,
    judge: Judge | None = None,
    **more: Any,
) -> tuple[ArmsRun, AbResult]:
    judge = judge or Judge(PLAN, slo=Slo(), metrics=("e2e_p50_s",))
    options = ArmsOptions(
        mode=mode,
        load=RunOptions(warmup_s=0.1, duration_s=0.4, drain_s=5.0),
        pairs_max=pairs,
        seed=1,
    )

    async def run() -> ArmsRun:
        return await run_arms(
            Portions(workload(), slot_s=0.5),
            {
                arm: ArmCalls(arm, PlanOptions(model="toy"), share_cache=a is b)
                for arm in ("a", "b")
            },
            {"a": Target(url=a.url), "b": Target(url=b.url)},
            options,
            is_enough=judge.is_enough,
            **more,
        )

    found = asyncio.run(run())
    return found, judge.result(found)


@pytest.mark.quiet
@pytest.mark.parametrize("mode", ["interleaved", "mirrored"])
def test_a_slower_arm_is_worse_by_how_much_it_is_slower(mode: Mode) -> None:
    with engines(replies(SLOW_S), replies(1.2 * SLOW_S)) as (a, b):
        run, result = compared(a, b, mode=mode)
    assert result.verdict == "worse", result.text
    found = result.comparisons["e2e_p50_s"]
    assert found.ratio == pytest.approx(1.2, abs=0.1)
    assert found.ci95 is not None
    assert found.ci95[0] > 1.0
    assert run.pairs == result.blocks
    pooled = [pooled_figures(run.slots, arm, Slo()) for arm in ("a", "b")]
    for arm in pooled:
        assert arm is not None
        assert arm.requests == sum(s.planned for s in run.slots) // 2
    assert pooled[0].e2e_s.p50 < pooled[1].e2e_s.p50  # type: ignore[union-attr,operator]


@pytest.mark.quiet
def test_the_same_engine_twice_shows_no_difference() -> None:
    with engines(replies(SLOW_S), replies(SLOW_S)) as (a, _):
        run, result = compared(a, a)
    assert result.verdict == "no_difference", result.text
    assert run.pairs >= 4
    bodies = [each.body for each in a.received]
    assert len(set(bodies)) == len(bodies)


def test_both_slots_of_a_pair_get_the_same_requests() -> None:
    with engines(replies(0.001), replies(0.001)) as (a, b):
        run, _ = compared(a, b, pairs=4)
    sent = {
        arm: sorted((r.block, r.index) for s in run.slots if s.arm == arm for r in s.load.records)
        for arm in ("a", "b")
    }
    assert sent["a"] == sent["b"]
    assert sorted(each.body for each in a.received) == sorted(each.body for each in b.received)


def test_a_restart_while_an_arm_is_measured_leaves_no_verdict() -> None:
    def observe(arm: Arm, start_s: float, end_s: float) -> ServerUse:
        return ServerUse(utilisation_ratio=0.5, memory_bytes=10, restarted=arm == "b")

    with engines(replies(SLOW_S), replies(2 * SLOW_S)) as (a, b):
        _, result = compared(a, b, pairs=4, observe=observe)
    assert result.verdict == "invalid"
    assert "restarted" in result.text
    assert result.comparisons["utilisation_ratio"].a == 0.5
    assert result.comparisons["memory_bytes"].b == 10


@pytest.mark.quiet
def test_failures_of_one_arm_are_told() -> None:
    judge = Judge(PLAN, slo=Slo(), metrics=("e2e_p50_s",))
    with engines(replies(SLOW_S), replies(SLOW_S)) as (a, b):
        bad = replies(0.0, status=500)
        b.following.extend(bad if i % 17 == 5 else b.behaviour for i in range(2000))
        run, result = compared(a, b, judge=judge)
    notes = judge.notes(run, mode="interleaved", sharing="machine")
    (note,) = [note for note in notes if "failed" in note]
    assert "arm a 0.00%" in note
    assert "server_error" in note
    assert result.comparisons["failed_ratio"].b == pytest.approx(0.05, abs=0.04)
    assert "failed_ratio" in result.deciding


@pytest.mark.parametrize(
    ("failing", "verdict"),
    [pytest.param("b", "worse", id="b"), pytest.param("a", "better", id="a")],
)
def test_an_arm_that_fails_all_the_time_is_the_worse_one(failing: Arm, verdict: str) -> None:
    bad = replies(0.0, status=503)
    with engines(*(bad if arm == failing else replies(SLOW_S) for arm in ("a", "b"))) as (a, b):
        run, result = compared(a, b)
    assert run.error is None
    assert result.verdict == verdict, result.text
    assert "100 % of" in result.text
    assert result.deciding == ("failed_ratio",)


@pytest.mark.parametrize(
    ("a_status", "b_status", "told"),
    [
        pytest.param(500, 503, "neither arm answered any request of pair 1", id="nobody answers"),
        pytest.param(200, 404, "arm b refused every request", id="b has not the model"),
        pytest.param(401, 200, "arm a refused every request", id="a wrong key of a"),
    ],
)
def test_arms_that_cannot_be_compared_end_the_run(a_status: int, b_status: int, told: str) -> None:
    with engines(replies(0.0, status=a_status), replies(0.0, status=b_status)) as (a, b):
        run, result = compared(a, b)
    assert run.pairs == 1
    assert told in str(run.error)
    assert result.verdict == "invalid"
    assert told in result.text


@pytest.mark.quiet
def test_a_closed_loop_measures_both_arms_on_the_same_requests() -> None:
    judge = Judge(PLAN, slo=Slo(), metrics=("e2e_p50_s",))
    options = ArmsOptions(
        mode="interleaved",
        load=RunOptions(mode="closed", concurrency=4, drain_s=5.0),
        pairs_max=6,
        wash_out_requests=6,
    )

    async def run(a: ScriptedEngine, b: ScriptedEngine) -> ArmsRun:
        return await run_arms(
            Portions(workload(), slot_s=0.5, count=30),
            {x: ArmCalls(x, PlanOptions(model="toy"), share_cache=False) for x in ("a", "b")},
            {"a": Target(url=a.url), "b": Target(url=b.url)},
            options,
            is_enough=judge.is_enough,
        )

    with engines(replies(SLOW_S), replies(1.4 * SLOW_S)) as (a, b):
        found = asyncio.run(run(a, b))
    result = judge.result(found)
    assert result.verdict == "worse", result.text
    measured = [
        sorted(r.index for r in slot.load.records if r.phase == "measured") for slot in found.slots
    ]
    assert measured[0] == measured[1]
    assert {len(indexes) for indexes in measured} == {24} == {slot.planned for slot in found.slots}
    assert result.comparisons["output_tokens_per_s"].ratio == pytest.approx(1 / 1.4, abs=0.1)


def test_settings_are_switched_before_each_slot_and_put_back() -> None:
    switch = Told()
    with engines(replies(0.001), replies(0.001)) as (a, _):
        run, _ = compared(a, a, pairs=4, switch=switch)
    assert switch == [slot.arm for slot in run.slots] + ["restored"]
    assert [slot.applied for slot in run.slots] == [f"settings {slot.arm}" for slot in run.slots]


def test_a_switch_that_fails_ends_the_run_and_settings_are_put_back() -> None:
    switch = Told(fails_at=4, restores=False)
    with engines(replies(0.001), replies(0.001)) as (a, _):
        run, result = compared(a, a, switch=switch)
    assert switch[-1] == "restored"
    assert (run.pairs, len(run.slots)) == (1, 2)
    assert "did not take" in result.text
    assert "is stuck" in str(run.restore_error)


@pytest.mark.parametrize("how", ["stop", "cancel"])
def test_a_run_that_is_ended_puts_settings_back_and_keeps_whole_pairs(how: str) -> None:
    switch = Told()

    async def story(a: ScriptedEngine) -> ArmsRun | None:
        stop = asyncio.Event()
        task = asyncio.create_task(
            run_arms(
                Portions(workload(), slot_s=0.5),
                {x: ArmCalls(x, PlanOptions(model="toy"), share_cache=True) for x in ("a", "b")},
                {"a": Target(url=a.url), "b": Target(url=a.url)},
                ArmsOptions(
                    mode="interleaved",
                    load=RunOptions(warmup_s=0.1, duration_s=0.4),
                    pairs_max=50,
                ),
                switch=switch,
                stop=stop,
            )
        )
        await asyncio.to_thread(a.until, lambda: len(a.received) > 50, "the second pair began")
        if how == "stop":
            stop.set()
            return await task
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return None

    with engines(replies(0.001), replies(0.001)) as (a, _):
        run = asyncio.run(story(a))
    assert switch[-1] == "restored"
    assert switch.count("restored") == 1
    if run is not None:
        assert run.stopped
        assert len(run.slots) == 2 * run.pairs


def _command(tmp_path: Any) -> Callable[[str], str]:
    return lambda text: f'echo "{text} $MILEAGE_ARM" >> {tmp_path}/log'


def test_commands_are_run_at_the_borders_and_at_the_end(tmp_path: Any) -> None:
    note = _command(tmp_path)
    switch = CommandSwitch({"a": note("one"), "b": note("two")}, end=note("three"), timeout_s=60.0)
    with engines(replies(0.001), replies(0.001)) as (a, _):
        run, _ = compared(a, a, pairs=2, switch=switch)
    names = {"a": "one a", "b": "two b"}
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines == [names[slot.arm] for slot in run.slots] + ["three end"]


@pytest.mark.parametrize(
    ("command", "why"),
    [
        pytest.param("exit 3", "exit code 3", id="it fails"),
        pytest.param("sleep 30", "killed", id="it takes too long"),
    ],
)
def test_a_command_that_fails_is_told(command: str, why: str) -> None:
    switch = CommandSwitch({"a": command, "b": command}, timeout_s=0.3)
    with pytest.raises(EngineError, match=why):
        asyncio.run(switch.to("a"))
