"""The governor before engines of a known speed: goodput, order, shares, refusals, observation."""

from __future__ import annotations

from random import Random

import pytest

from benchmarks.support.step_model import MODELS, Plane, StepModel
from mileage.control.config import ControlConfig, GovernorConfig
from mileage.core.slo import SloConfig
from mileage.policy.limits.static import StaticConfig
from mileage.policy.tenants import TenantLimits
from tests.support.governed import World

CPU = StepModel(
    compute=Plane(base_s=0.002, running_s=0.010, prefill_token_s=0.004),
    memory=Plane(base_s=0.002),
)
"""Compute-bound: a batch is as slow as its members one after the other."""
TTFT_S, ITL_S = 1.5, 0.6


def config(
    limit: int | None = None, *, ttft_s: float | None = None, mode: str = "act", **governor: object
) -> ControlConfig:
    """A static limit, and a target for the first token."""
    tenants = governor.pop("tenants", {})
    return ControlConfig(
        governor=GovernorConfig(
            mode=mode,  # type: ignore[arg-type]
            policy="static",
            static=StaticConfig(limit=limit),
            **governor,  # type: ignore[arg-type]
        ),
        slo=SloConfig(ttft_s=ttft_s),
        tenants=tenants,  # type: ignore[arg-type]
    )


def overload(world: World, load: float, requests: int = 300) -> float:
    """Poisson arrivals at `load` times what the engine can do; gives that rate."""
    random = Random(5)
    per_s = 1 / CPU.work_s(40, 16)
    at_s = 0.0
    for _ in range(requests):
        at_s += random.expovariate(load * per_s)
        world.arrive(
            at_s, prompt_tokens=random.randint(16, 64), output_tokens=random.randint(8, 24)
        )
    return per_s


def test_under_overload_nearly_all_the_work_done_is_in_time() -> None:
    alone = World(config(mode="off", ttft_s=TTFT_S), CPU, running_max=8)
    governed = World(config(4, ttft_s=TTFT_S), CPU, running_max=8)
    for world in (alone, governed):
        per_s = overload(world, 2.0)
        world.run()
    assert alone.goodput(TTFT_S, ITL_S) < 0.1 * len(alone.requests)
    assert governed.goodput(TTFT_S, ITL_S) / governed.now_s > 0.9 * per_s
    served = [ended for ended in governed.requests.values() if ended.finished_s is not None]
    late = [ended for ended in served if (ended.ttft_s or 0.0) > TTFT_S]
    assert len(late) < 0.03 * len(served)


def test_below_capacity_nothing_is_refused() -> None:
    world = World(config(8, ttft_s=10.0), CPU, running_max=8)
    overload(world, 0.5)
    world.run()
    assert not world.refused()
    assert all(ended.finished_s is not None for ended in world.requests.values())


def test_most_refusals_come_at_once() -> None:
    world = World(config(4, ttft_s=TTFT_S), CPU, running_max=8)
    overload(world, 2.0)
    world.run()
    refused = [e for e in world.requests.values() if e.refusal is not None]
    at_once = [e for e in refused if e.refused_s == e.request.arrived_s]
    assert len(refused) > 80
    assert len(at_once) > 0.8 * len(refused)
    assert all(e.refusal and e.refusal.reason == "deadline" and e.refusal.detail for e in refused)


def test_a_client_that_waits_as_told_is_served_in_time() -> None:
    """Retry-After is true: what was refused would be in time if it came again then."""
    world = World(config(4, ttft_s=TTFT_S), CPU, running_max=8)
    overload(world, 2.0, requests=200)
    world.run()
    refused = [e for e in world.requests.values() if e.refusal is not None]
    in_time = 0
    for probe in refused[20:80:3]:
        again = World(config(4, ttft_s=TTFT_S), CPU, running_max=8)
        overload(again, 2.0, requests=200)
        assert probe.refusal is not None
        assert probe.refusal.retry_after_s is not None
        # The others have stopped coming meanwhile: all that was promised is that it drains.
        came_s = probe.request.arrived_s
        again._heap = [entry for entry in again._heap if entry[0] <= came_s]
        prompt_tokens = probe.request.prompt_tokens_estimate
        retry_at_s = came_s + probe.refusal.retry_after_s
        retry = again.arrive(retry_at_s, prompt_tokens=prompt_tokens)
        again.run()
        in_time += (again.requests[retry].ttft_s or 99.0) <= TTFT_S
    assert in_time >= 18


def test_nobody_is_refused_for_what_is_only_guessed_of_a_replica() -> None:
    """A burst at the very start, that the replica serves in time: nothing is known of it yet."""
    slo = SloConfig(ttft_s=2.0, itl_s=0.06)
    model = StepModel(
        compute=Plane(base_s=0.002, running_s=0.000_05, prefill_token_s=0.000_01),
        memory=Plane(base_s=0.008),
    )
    world = World(ControlConfig(slo=slo), model, running_max=1024, step_tokens_max=8192)
    for _ in range(300):
        world.arrive(0.0, prompt_tokens=10, output_tokens=20)
    world.run()
    assert not world.refused()
    assert world.goodput(2.0, 0.06) == 300


def test_without_targets_all_are_served_and_the_engine_is_full() -> None:
    world = World(config(8), CPU, running_max=8)
    for _ in range(100):
        world.arrive(0.0)
    world.run()
    assert not world.refused()
    assert world.engines["a"].counters.finished == 100
    assert world.engines["a"].counters.running_max == 8


ALIKE = {"a": (160, 30), "b": (160, 30)}
APART = {"a": (900, 10), "b": (60, 50)}
SHORT = {"a": (300, 8), "b": (18, 48)}


@pytest.mark.parametrize(
    "stream", [pytest.param(True, id="streams"), pytest.param(False, id="whole")]
)
@pytest.mark.parametrize(
    ("weights", "shapes", "within"),
    [
        pytest.param((3.0, 1.0), ALIKE, 0.01, id="3:1"),
        pytest.param((1.0, 1.0), ALIKE, 0.01, id="1:1"),
        pytest.param((10.0, 1.0), ALIKE, 0.01, id="10:1"),
        # How far they are apart has to be learned from what they take together.
        pytest.param((1.0, 1.0), APART, 0.1, id="1:1, long prompts against long answers"),
        pytest.param((3.0, 1.0), APART, 0.1, id="3:1, long prompts against long answers"),
        pytest.param((3.0, 1.0), SHORT, 0.1, id="3:1, prompts and answers less far apart"),
        pytest.param((1.0, 3.0), SHORT, 0.1, id="1:3, the same the other way round"),
    ],
)
def test_backlogged_tenants_share_the_engines_time_by_weight(
    weights: tuple[float, float],
    shapes: dict[str, tuple[int, int]],
    within: float,
    stream: bool,
) -> None:
    """By the step time that the engine really has, which the controller has to find out."""
    model = MODELS["linear"]
    tenants = {n: TenantLimits(weight=w) for n, w in zip("ab", weights, strict=True)}
    world = World(config(16, tenants=tenants, queue_wait_max_s=1e6), model, running_max=64)
    random = Random(3)
    for tenant, (prompt, output) in shapes.items():
        for _ in range(2500):
            world.arrive(
                0.0,
                tenant=tenant,
                prompt_tokens=int(prompt * random.uniform(0.5, 1.5)),
                output_tokens=int(output * random.uniform(0.5, 1.5)),
                stream=stream,
            )
    world.run(until_s=20.0)
    before = dict.fromkeys("ab", (0, 0)) | {n: tuple(w) for n, w in world.engines["a"].work.items()}
    world.run(until_s=100.0)
    spent_s = {
        tenant: sum(
            (now - then) * each_s
            for now, then, each_s in zip(
                work,
                before[tenant],
                (model.compute.prefill_token_s, model.compute.running_s),
                strict=True,
            )
        )
        for tenant, work in world.engines["a"].work.items()
    }
    assert spent_s["a"] / spent_s["b"] == pytest.approx(weights[0] / weights[1], rel=within)


def test_a_tenant_below_its_share_hardly_waits_for_one_that_floods() -> None:
    tenants = {"flood": TenantLimits(), "small": TenantLimits()}
    world = World(config(4, tenants=tenants, fair_slack_s=0.0), CPU, running_max=8)
    for _ in range(200):
        world.arrive(0.0, tenant="flood")
    small = [world.arrive(5.0 * i, tenant="small") for i in range(1, 8)]
    world.run(until_s=60.0)
    for request_id in small:
        ended = world.requests[request_id]
        assert ended.dispatched_s is not None
        assert ended.dispatched_s - ended.request.arrived_s < 2.5


def test_no_class_starves_and_the_higher_goes_first() -> None:
    tenants = {
        "high": TenantLimits(priority="high"),
        "low": TenantLimits(priority="low"),
    }
    world = World(config(4, tenants=tenants, queue_wait_max_s=1e6), CPU, running_max=8)
    low = world.arrive(0.01, tenant="low")
    for i in range(300):
        world.arrive(i * 0.2, tenant="high")
    world.run(until_s=60.0)
    ended = world.requests[low]
    assert ended.dispatched_s is not None
    high = [e for e in world.requests.values() if e.request.tenant == "high" and e.finished_s]
    assert len(high) > 80


def test_a_client_cannot_raise_its_priority() -> None:
    tenants = {"a": TenantLimits(priority="low"), "b": TenantLimits(priority="low")}
    world = World(config(1, tenants=tenants, fair_slack_s=0.0), CPU, running_max=8)
    for _ in range(20):
        world.arrive(0.0, tenant="a", priority="high")
        world.arrive(0.0, tenant="b")
    world.run(until_s=6.0)
    done = [e.request.tenant for e in world.requests.values() if e.finished_s is not None]
    assert abs(done.count("a") - done.count("b")) <= 1


def test_the_queue_is_bounded() -> None:
    world = World(config(1, queue_max=5), CPU)
    for _ in range(20):
        world.arrive(0.0)
    world.run()
    assert world.refused() == {"queue_full": 14}
    refusal = next(e.refusal for e in world.requests.values() if e.refusal)
    assert refusal is not None
    assert "5 requests are waiting" in (refusal.detail or "")
    assert refusal.retry_after_s is not None
    assert refusal.retry_after_s > 0


def test_what_is_held_too_long_is_refused() -> None:
    world = World(config(1, queue_wait_max_s=2.0), CPU)
    for _ in range(20):
        world.arrive(0.0)
    world.run()
    assert world.refused()["deadline"] > 5
    for ended in world.requests.values():
        if ended.refused_s is not None:
            assert 2.0 <= ended.refused_s <= 2.6


def test_observing_changes_nothing_and_counts() -> None:
    off = World(config(mode="off", ttft_s=TTFT_S), CPU, running_max=8)
    seen = World(config(2, mode="observe", ttft_s=TTFT_S), CPU, running_max=8)
    for world in (off, seen):
        overload(world, 2.0)
        world.run()
    times = [[e.finished_s for e in w.requests.values()] for w in (off, seen)]
    assert times[0] == times[1]
    governor = seen.controller.governor
    assert governor.would_refuse_total > 100
    assert governor.would_hold_total > 0
    assert seen.limits[0][1].limit == 2
    assert off.controller.governor.would_refuse_total == 0
    assert not off.limits


def test_a_held_request_whose_client_leaves_is_forgotten() -> None:
    world = World(config(1), CPU)
    ids = [world.arrive(0.0) for _ in range(4)]
    world.cancel(0.1, ids[2])
    world.run()
    assert world.requests[ids[2]].dispatched_s is None
    assert [world.requests[i].finished_s is not None for i in ids] == [True, True, False, True]
    assert world.controller.in_flight == 0
    assert world.controller.governor.held == 0


def test_cancels_teach_nothing() -> None:
    """Clients that leave at once do not make the forecast believe that the engine is fast."""
    worlds = [World(config(4, ttft_s=TTFT_S), CPU, running_max=8) for _ in range(2)]
    for world in worlds:
        overload(world, 2.0)
    for _ in range(100):
        left = worlds[1].arrive(50.0)
        worlds[1].cancel(50.0, left)
    for world in worlds:
        world.run()
    assert worlds[1].goodput(TTFT_S) > 0.85 * worlds[0].goodput(TTFT_S)


def test_a_full_queue_has_room_for_whoever_has_less_than_his_part_of_it() -> None:
    world = World(config(1, queue_max=5), CPU)
    for _ in range(9):
        world.arrive(0.0, tenant="flood")
    meek = world.arrive(0.1, tenant="meek")
    low = [world.arrive(0.1, tenant="meek", priority="low") for _ in range(3)]
    world.run()
    assert world.refused() == {"queue_full": 7}
    assert world.requests[meek].finished_s is not None
    assert all(world.requests[each].refusal for each in low)
    # Of the flood those that came first stay.
    flood = [e for e in world.requests.values() if e.request.tenant == "flood"]
    assert [e.refusal is None for e in flood] == [True] * 5 + [False] * 4
