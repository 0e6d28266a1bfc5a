"""The driver: what the controller is told, and what becomes of requests."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from random import Random
from typing import get_args

import msgspec
import pytest

from mileage.control.config import ControlConfig, GovernorConfig, LimitPolicyName
from mileage.control.controller import Controller
from mileage.core.actions import Action
from mileage.core.events import Event, Finished, FirstToken, Observed
from mileage.core.replica import ReplicaView
from mileage.core.slo import SloConfig
from mileage.policy.limits.static import StaticConfig
from mileage.policy.tenants import BudgetConfig, TenantLimits
from mileage.sim.engine_config import EngineConfig
from mileage.sim.node import ReplicaSpec
from mileage.sim.outcome import CANCELLED, FAILED, OK, REJECTED
from mileage.sim.simulation import SimConfig, SimResult, Simulation
from mileage.workload.trace_request import TraceRequest
from tests.support.engine_host import linear_table

TABLE = linear_table((0.01, 2e-4, 1e-6, 5e-5, 1e-8))
ENGINE = EngineConfig(kv_blocks=500, running_max=32, step_tokens_max=256)
STATIC = ControlConfig(governor=GovernorConfig(policy="static", static=StaticConfig(limit=3)))
OFF = ControlConfig(governor=GovernorConfig(mode="off"))


def fleet(count: int = 1, engine: EngineConfig = ENGINE) -> list[ReplicaSpec]:
    return [
        ReplicaSpec(name=f"r{i}", engine=engine, table=TABLE, models=("m",)) for i in range(count)
    ]


def traffic(
    count: int, *, rate: float = 20.0, seed: int = 1, output_tokens: int = 60
) -> list[TraceRequest]:
    random, now_s, requests = Random(seed), 0.0, []
    for _ in range(count):
        now_s += random.expovariate(rate)
        requests.append(
            TraceRequest(
                arrived_s=now_s,
                prompt_tokens=random.randint(1, 300),
                output_tokens=random.randint(1, output_tokens),
            )
        )
    return requests


def run(
    requests: Iterable[TraceRequest],
    *,
    replicas: Sequence[ReplicaSpec] = (),
    control: ControlConfig = OFF,
    config: SimConfig | None = None,
) -> SimResult:
    return Simulation(replicas or fleet(), control=control, config=config).run(requests)


def columns(result: SimResult) -> dict[str, bytes]:
    names = type(result.outcomes).__slots__
    return {name: getattr(result.outcomes, name).tobytes() for name in names}


class Told:
    """Everything that a controller is told, as it goes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[tuple[float, Event]] = []
        handle = Controller.handle

        def spy(controller: Controller, event: Event, now_s: float) -> Sequence[Action]:
            self.events.append((now_s, event))
            return handle(controller, event, now_s)

        monkeypatch.setattr(Controller, "handle", spy)

    def views(self) -> list[ReplicaView]:
        return [event.view for _, event in self.events if isinstance(event, Observed)]


# --- the same again -------------------------------------------------------------------------------


@pytest.mark.parametrize("noise_ratio", [0.0, 0.1])
def test_the_same_seed_gives_the_same_results_to_the_last_bit(noise_ratio: float) -> None:
    engine = msgspec.structs.replace(ENGINE, noise_ratio=noise_ratio)
    control = ControlConfig(slo=SloConfig(ttft_s=1.0, itl_s=0.05))

    def once() -> dict[str, bytes]:
        return columns(run(traffic(200, rate=60), replicas=fleet(3, engine), control=control))

    assert once() == once()


def test_another_seed_gives_other_noise() -> None:
    engine = msgspec.structs.replace(ENGINE, noise_ratio=0.1)
    one, other = (
        run(traffic(50), replicas=fleet(1, engine), config=SimConfig(seed=seed)) for seed in (1, 2)
    )
    assert columns(one) != columns(other)


def test_noise_keeps_the_mean_of_steps() -> None:
    exact = run(traffic(300))
    noisy = run(traffic(300), replicas=fleet(1, msgspec.structs.replace(ENGINE, noise_ratio=0.1)))
    means = [
        sum(r.outcomes.itl_mean_s[i] for i in range(300) if r.outcomes.output_tokens[i] > 1)
        for r in (exact, noisy)
    ]
    assert means[1] == pytest.approx(means[0], rel=0.03)
    assert max(noisy.outcomes.itl_p99_s) > max(exact.outcomes.itl_p99_s)


# --- what the controller is told ------------------------------------------------------------------


def test_the_controller_is_told_of_tokens_and_ends_at_their_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = Told(monkeypatch)
    result = run([TraceRequest(arrived_s=5.0, prompt_tokens=100, output_tokens=11)])
    prefill_s = TABLE.step_s(0, 0, 100, 5050.0)
    gaps_s = [TABLE.step_s(1, 100 + i) for i in range(10)]
    (first,) = [(at, event) for at, event in told.events if isinstance(event, FirstToken)]
    (end,) = [(at, event) for at, event in told.events if isinstance(event, Finished)]
    assert first[0] == pytest.approx(5.0 + prefill_s)
    assert first[1].request_id == 1
    assert end[0] == pytest.approx(5.0 + prefill_s + sum(gaps_s))
    event = end[1]
    assert isinstance(event, Finished)
    assert (event.prompt_tokens, event.cached_tokens, event.output_tokens) == (100, 0, 11)
    assert event.itl_p99_s == pytest.approx(gaps_s[-1])
    assert event.itl_mean_s == pytest.approx(sum(gaps_s) / 10)
    assert result.outcomes.ttft_s[0] == pytest.approx(prefill_s)
    assert result.duration_s == pytest.approx(prefill_s + sum(gaps_s))


def test_an_answer_that_is_no_stream_has_no_first_token_and_no_gaps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = Told(monkeypatch)
    run([TraceRequest(arrived_s=0.0, prompt_tokens=10, output_tokens=5, stream=False)])
    assert not [event for _, event in told.events if isinstance(event, FirstToken)]
    (end,) = [event for _, event in told.events if isinstance(event, Finished)]
    assert end.itl_p99_s is None
    assert end.output_tokens == 5


def test_each_replica_is_observed_once_per_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(monkeypatch)
    run(traffic(100), replicas=fleet(2), config=SimConfig(scrape_interval_s=0.5))
    views = told.views()
    start_s = views[0].observed_s
    assert [(v.replica, v.observed_s) for v in views[:4]] == [
        ("r0", start_s),
        ("r1", start_s),
        ("r0", start_s + 0.5),
        ("r1", start_s + 0.5),
    ]
    assert len(views) >= 16


def test_views_tell_the_state_of_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(monkeypatch)
    run(
        [TraceRequest(arrived_s=i * 1e-3, prompt_tokens=160, output_tokens=100) for i in range(4)],
        replicas=fleet(1, msgspec.structs.replace(ENGINE, running_max=2)),
        config=SimConfig(scrape_interval_s=0.25),
    )
    view = told.views()[2]
    assert (view.running, view.waiting, view.running_max) == (2, 2, 2)
    assert view.kv_tokens_max == 500 * 16
    # The first began at once, and the second after its step: in half a second both have decoded.
    prefill_s = TABLE.step_s(0, 0, 160, 160 * 161 / 2)
    steps = int((0.5 - 2 * prefill_s) / TABLE.step_s(2, 380))
    blocks = 2 * math.ceil((160 + steps) / 16)
    assert view.kv_cache_usage_ratio == pytest.approx(blocks / 500, abs=2 / 500)
    assert view.output_tokens_total == pytest.approx(2 * steps + 3, abs=4)
    assert view.prompt_tokens_total == 320
    assert view.compute_busy_ratio is not None
    assert 0.0 < view.compute_busy_ratio < 0.2


# --- what becomes of requests ---------------------------------------------------------------------


@pytest.mark.parametrize("policy", get_args(LimitPolicyName))
def test_every_limit_policy_runs_and_all_requests_end(policy: LimitPolicyName) -> None:
    control = ControlConfig(
        governor=GovernorConfig(policy=policy), slo=SloConfig(ttft_s=2.0, itl_s=0.05)
    )
    result = run(traffic(150, rate=40), replicas=fleet(2), control=control)
    assert set(result.outcomes.status) <= {OK, REJECTED}
    assert sum(result.rejections.values()) == sum(s == REJECTED for s in result.outcomes.status)
    assert sum(each.finished for each in result.replicas) == list(result.outcomes.status).count(OK)


def test_what_waits_for_the_limit_is_held_before_the_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = Told(monkeypatch)
    result = run(traffic(60, rate=100), control=STATIC, config=SimConfig(scrape_interval_s=0.05))
    assert set(result.outcomes.status) == {OK}
    assert max((view.running or 0) + (view.waiting or 0) for view in told.views()) <= 3
    assert (result.series.peak("held") or 0.0) > 3


def test_what_would_be_late_is_refused_and_counted() -> None:
    control = ControlConfig(slo=SloConfig(ttft_s=0.3))
    result = run(traffic(400, rate=200), control=control)
    refused = result.rejections["deadline"]
    assert refused > 20
    assert refused == list(result.outcomes.status).count(REJECTED)
    rows = [i for i, status in enumerate(result.outcomes.status) if status == REJECTED]
    assert all(math.isnan(result.outcomes.ttft_s[i]) for i in rows)


def test_a_model_that_nobody_serves_is_refused() -> None:
    request = TraceRequest(arrived_s=0.0, prompt_tokens=1, output_tokens=1, model="other")
    assert run([request]).rejections == {"model_not_found": 1}


def test_equal_requests_share_one_generation_and_end_together() -> None:
    twins = [
        TraceRequest(arrived_s=at, prompt_tokens=50, output_tokens=40, content_id=7)
        for at in (0.0, 0.1, 0.2)
    ]
    out = (result := run(twins)).outcomes
    assert list(out.joined) == [0, 1, 1]
    assert set(out.status) == {OK}
    ends = [arrived + e2e for arrived, e2e in zip(out.arrived_s, out.e2e_s, strict=True)]
    assert ends == pytest.approx([ends[0]] * 3)
    assert list(out.output_tokens) == [40, 40, 40]
    assert result.replicas[0].output_tokens == 40
    # The tokens that were there when it joined came to it at once.
    assert out.ttft_s[0] > 0.0
    assert list(out.ttft_s)[1:] == [0.0, 0.0]


def test_embeddings_that_share_a_call_are_all_computed() -> None:
    requests = [
        TraceRequest(arrived_s=i * 1e-4, prompt_tokens=100, output_tokens=0, endpoint="embeddings")
        for i in range(40)
    ]
    result = run(requests)
    assert set(result.outcomes.status) == {OK}
    assert result.replicas[0].prefill_tokens == 4000
    ends = [a + e for a, e in zip(result.outcomes.arrived_s, result.outcomes.e2e_s, strict=True)]
    assert len({round(end, 9) for end in ends}) < 40  # some have waited for their call's others
    assert not any(result.outcomes.joined)


def test_a_request_that_can_never_fit_fails_and_the_others_go_on() -> None:
    requests = traffic(20)
    requests[5] = msgspec.structs.replace(requests[5], prompt_tokens=500 * 16 + 1)
    result = run(requests)
    assert list(result.outcomes.status) == [FAILED if i == 5 else OK for i in range(20)]


def test_clients_without_patience_leave_and_free_their_engine() -> None:
    requests = traffic(200, rate=200, output_tokens=100)
    patient = run(requests)
    result = run(requests, config=SimConfig(patience_s=0.5))
    status = list(result.outcomes.status)
    assert set(status) == {OK, CANCELLED}
    gone = [i for i, each in enumerate(status) if each == CANCELLED]
    assert gone
    assert all(result.outcomes.e2e_s[i] == pytest.approx(0.5) for i in gone)
    assert result.duration_s < patient.duration_s
    assert 0 <= result.replicas[0].finished - status.count(OK) < len(gone)


def test_who_waits_on_is_answered_where_the_first_of_a_generation_leaves() -> None:
    busy = TraceRequest(arrived_s=0.0, prompt_tokens=250, output_tokens=300)
    twin = TraceRequest(arrived_s=0.1, prompt_tokens=50, output_tokens=10, content_id=1)
    late = msgspec.structs.replace(twin, arrived_s=3.0)
    engine = msgspec.structs.replace(ENGINE, running_max=1)
    result = run([busy, twin, late], replicas=fleet(1, engine), config=SimConfig(patience_s=2.95))
    assert list(result.outcomes.status) == [OK, CANCELLED, OK]
    assert result.outcomes.joined[2] == 1
    assert result.outcomes.output_tokens[2] == 10
    assert math.isnan(result.outcomes.ttft_s[1])


def test_a_tenant_beyond_its_budget_is_refused() -> None:
    budget = BudgetConfig(amount=2000, unit="tokens", per="hour")
    control = ControlConfig(
        governor=GovernorConfig(mode="act"), tenants={"small": TenantLimits(budgets=(budget,))}
    )
    requests = [
        TraceRequest(
            arrived_s=float(i),
            prompt_tokens=90,
            output_tokens=10,
            output_tokens_max=10,
            tenant="small" if i % 2 else "default",
        )
        for i in range(100)
    ]
    result = run(requests, control=control)
    answered = [i for i, status in enumerate(result.outcomes.status) if status == OK]
    assert sum(i % 2 == 0 for i in answered) == 50
    assert sum(i % 2 for i in answered) == 20
    assert result.rejections == {"budget_exhausted": 30}


def test_requests_with_one_prefix_go_to_the_replica_that_has_it() -> None:
    random = Random(1)
    requests = []
    for i in range(90):
        stem = random.choice((100, 200, 300))
        blocks = (*range(stem, stem + 10), 1000 + i)
        requests.append(
            TraceRequest(
                arrived_s=i * 0.2,
                prompt_tokens=11 * 16,
                output_tokens=5,
                prefix_blocks=blocks,
                block_tokens=16,
            )
        )
    result = run(requests, replicas=fleet(4))
    assert sum(result.outcomes.cached_tokens) == (90 - 3) * 160
    assert len(set(result.outcomes.replica)) <= 3


def test_the_controller_may_be_told_estimates_that_are_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = Told(monkeypatch)
    run(traffic(100), config=SimConfig(prompt_error_ratio=0.3))
    ends = {e.request_id: e.prompt_tokens for _, e in told.events if isinstance(e, Finished)}
    estimates = {
        e.request.id: e.request.prompt_tokens_estimate
        for _, e in told.events
        if hasattr(e, "request")
    }
    errors = [abs(estimates[i] / (ends[i] or 1) - 1) for i in ends if (ends[i] or 0) > 50]
    assert 0.1 < sum(errors) / len(errors) < 0.4


# --- what is refused ------------------------------------------------------------------------------


def test_a_controller_that_failed_is_an_error_and_no_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("as a test")

    monkeypatch.setattr("mileage.control.governor.Governor.place", broken)
    with pytest.raises(RuntimeError, match="ZeroDivisionError: as a test"):
        run(traffic(20, rate=200), control=STATIC)


def test_no_requests_make_an_empty_result() -> None:
    result = run([])
    assert len(result.outcomes) == 0
    assert result.duration_s == 0.0


def test_progress_is_told_now_and_then() -> None:
    seen: list[int] = []
    Simulation(fleet(), control=OFF).run(
        traffic(2100, rate=500, output_tokens=2), progress=seen.append
    )
    assert seen == [1024, 2048]
