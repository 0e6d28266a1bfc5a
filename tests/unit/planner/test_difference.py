"""What an existing deployment does otherwise than its plan: by what undoing it saves."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.core.errors import ConfigError
from mileage.core.slo import Slo
from mileage.costmodel.catalogue import architecture
from mileage.planner.built import Builder
from mileage.planner.candidate import Candidate, Sharing
from mileage.planner.difference import Cost, difference
from mileage.planner.evaluation import World
from mileage.planner.full_load import batch_cost, rate_cost
from mileage.planner.goal import Goal
from mileage.planner.traffic import Traffic
from mileage.sim.engine_features import SpeculationConfig
from mileage.workload.trace_request import TraceRequest

PLANNED = Candidate(gpu="L40S", weights="fp8", running_max=128, replicas=2)
L40S_USD = 1.7
BUILDER = Builder(model=architecture("llama-3.1-8b"))


def cost_of(candidate: Candidate) -> Cost:
    """BF16 costs a third more, 32 at a time half more, both together twice as much."""
    usd = 1.0
    usd += 0.33 if candidate.weights == "bf16" else 0.0
    usd += 0.5 if candidate.running_max == 32 else 0.0
    if candidate.weights == "bf16" and candidate.running_max == 32:
        usd = 2.0
    return Cost(usd_per_hour=candidate.replicas * L40S_USD, usd_per_mtok=usd, gpu_h_per_mtok=usd)


def test_what_saves_most_comes_first() -> None:
    known = {"weights": "bf16", "running_max": 32, "kv": "bf16", "replicas": 4}
    found = difference(known, PLANNED, cost_of)
    # Each is undone by itself: from 2.0 to 1.33 without the limit, to 1.5 without BF16.
    assert [each.field for each in found.differences] == ["running_max", "weights", "replicas"]
    first, second, third = found.differences
    assert (first.existing, first.planned) == (32, 128)
    assert first.saving_usd_per_mtok == pytest.approx(2.0 - 1.33)
    assert second.saving_ratio == pytest.approx(0.25)
    assert second.saving_usd_per_hour == pytest.approx(0.25 * 4 * L40S_USD)
    assert third.saving_ratio == pytest.approx(0.0)
    assert found.saving_ratio == pytest.approx(0.5)
    assert found.saving_usd_per_hour == pytest.approx(0.5 * 4 * L40S_USD)


def test_what_is_not_known_is_taken_to_be_as_planned_and_told() -> None:
    found = difference({"running_max": 128}, PLANNED, cost_of)
    assert found.differences == ()
    assert found.existing == PLANNED
    assert found.saving_ratio == 0.0
    assert "weights" in found.unknown
    assert "running_max" not in found.unknown


def test_what_cannot_be_said_comes_last_with_its_reason() -> None:
    def priceless(candidate: Candidate) -> Cost:
        if candidate.weights == "bf16":
            return Cost(gpu_h_per_mtok=2.0)
        return Cost(problem="it does not fit")

    found = difference({"weights": "bf16", "prefix_cache": False}, PLANNED, priceless)
    first, last = found.differences
    assert (first.field, first.saving_ratio) == ("prefix_cache", 0.0)
    assert first.saving_usd_per_hour is None
    assert (last.field, last.saving_ratio, last.problem) == ("weights", None, "it does not fit")
    assert found.saving_ratio is None


def test_without_prices_gpu_hours_are_compared() -> None:
    def hours(candidate: Candidate) -> Cost:
        return Cost(gpu_h_per_mtok=4.0 if candidate.weights == "bf16" else 3.0)

    found = difference({"weights": "bf16"}, PLANNED, hours)
    assert found.differences[0].saving_ratio == pytest.approx(0.25)
    assert found.differences[0].saving_usd_per_mtok is None


def test_undoing_what_cannot_stand_alone_is_told() -> None:
    planned = Candidate(gpu="L40S", replicas=2, sharing=Sharing(replicas=2))
    found = difference({"replicas": 1, "sharing": None}, planned, cost_of)
    replicas, sharing = found.differences
    assert (replicas.field, replicas.saving_ratio) == ("replicas", 0.0)
    assert (sharing.field, sharing.saving_ratio) == ("sharing", None)
    assert "so many share a GPU" in (sharing.problem or "")


def test_values_that_no_set_up_has_are_refused() -> None:
    with pytest.raises(ConfigError):
        difference({"replicas": 0}, PLANNED, cost_of)


def world(**fields: Any) -> World:
    usual: dict[str, Any] = {
        "goal": Goal(slo=Slo(ttft_s=2.0, itl_s=0.2), gaps="mean"),
        "usd_per_gpu_hour": {"L40S": L40S_USD},
    }
    return World(**{**usual, **fields})


def full(candidate: Candidate, **others: Any) -> Cost:
    sizes = {"prompt_tokens": 512, "output_tokens": 256, **others}
    return batch_cost(candidate, BUILDER, world(), **sizes)


def test_full_batches_by_hand() -> None:
    found = full(PLANNED)
    built = BUILDER.build(PLANNED)
    decode_s = built.table.step_s(128, 128 * (512 + 128))
    prefill_s = built.table.step_s(0, 0, 2048, 2048 * 513 / 2)
    tokens_per_s = 2 * 128 * 256 / (256 * decode_s + 128 * 512 / 2048 * prefill_s)
    assert found.gpu_h_per_mtok == pytest.approx(2e6 / tokens_per_s / 3600)
    assert found.usd_per_mtok == pytest.approx(L40S_USD * (found.gpu_h_per_mtok or 0.0))
    assert found.usd_per_hour == pytest.approx(2 * L40S_USD)


@pytest.mark.parametrize(
    ("candidate", "problem"),
    [
        pytest.param(
            Candidate(gpu="L40S", speculation=SpeculationConfig(draft_tokens=3)),
            "only a simulation tells",
            id="speculation",
        ),
        pytest.param(Candidate(gpu="T4"), "more each", id="a model that does not fit"),
    ],
)
def test_no_figure_comes_with_its_reason(candidate: Candidate, problem: str) -> None:
    found = full(candidate)
    assert found.usd_per_mtok is None
    assert problem in (found.problem or "")


def test_a_request_that_no_cache_holds_has_no_cost() -> None:
    assert "room for a request" in (full(PLANNED, prompt_tokens=10_000_000).problem or "")


def test_fewer_bits_and_larger_batches_are_cheaper() -> None:
    bf16 = full(Candidate(gpu="L40S", running_max=128, replicas=2))
    small = full(Candidate(gpu="L40S", weights="fp8", running_max=16, replicas=2))
    planned = full(PLANNED)
    assert planned.usd_per_mtok is not None
    assert (bf16.usd_per_mtok or 0.0) > planned.usd_per_mtok
    assert (small.usd_per_mtok or 0.0) > planned.usd_per_mtok


def test_the_highest_rate_within_the_goal() -> None:
    traffic = Traffic.of(
        TraceRequest(arrived_s=0.25 * n, prompt_tokens=400, output_tokens=100) for n in range(400)
    )
    planned = rate_cost(PLANNED, BUILDER, traffic, world())
    small = rate_cost(
        Candidate(gpu="L40S", weights="fp8", running_max=8, replicas=2), BUILDER, traffic, world()
    )
    assert planned.usd_per_mtok is not None
    assert (small.usd_per_mtok or 0.0) > 1.2 * planned.usd_per_mtok
    never = world(goal=Goal(slo=Slo(ttft_s=1e-4)))
    assert rate_cost(PLANNED, BUILDER, traffic, never).problem == "the goal is kept at no rate"
    always = world(goal=Goal(slo=Slo(ttft_s=1e6, itl_s=1e6)))
    assert "too high" in (rate_cost(PLANNED, BUILDER, traffic, always).problem or "")
    assert "more each" in (rate_cost(Candidate(gpu="T4"), BUILDER, traffic, world()).problem or "")
