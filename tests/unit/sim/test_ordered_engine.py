"""An engine with policies inside: who is prefilled when, and what it costs the others."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from mileage.core.slo import Slo
from mileage.costmodel.step_table import StepTable
from mileage.policy.budget.model import ModelBudgetConfig
from mileage.policy.prefill import PrefillConfig
from mileage.sim.engine import Engine
from mileage.sim.engine_config import EngineConfig
from mileage.sim.ordered_engine import OrderedEngine
from mileage.sim.sequence import Sequence
from tests.support.engine_host import linear_table, run_engine

SLO = Slo(ttft_s=2.0, itl_s=0.05, ttft_unloaded_ratio=3.0)
TABLE = linear_table((0.01, 0.0, 0.0, 1e-4, 0.0), requests_max=64, tokens_max=2048)


def config_of(prefill: PrefillConfig | None, *, kv_blocks: int = 10_000) -> EngineConfig:
    return EngineConfig(kv_blocks=kv_blocks, running_max=64, step_tokens_max=1024, prefill=prefill)


def run(config: EngineConfig, jobs: list[tuple[float, int, int]]) -> tuple[list[Sequence], Engine]:
    sequences = [Sequence(i, prompt, output) for i, (_, prompt, output) in enumerate(jobs)]
    for (arrived_s, _, _), sequence in zip(jobs, sequences, strict=True):
        sequence.arrived_s = arrived_s
    make = Engine if config.prefill is None else OrderedEngine
    engine = run_engine(
        config,
        TABLE,
        [(arrived_s, s) for (arrived_s, _, _), s in zip(jobs, sequences, strict=True)],
        make=make,
    )
    return sequences, engine


def ttft_s(sequence: Sequence) -> float:
    return sequence.first_token_s - sequence.arrived_s


WARM = [(0.2 * i, 512 + 64 * i, 20) for i in range(20)]
"""So that it knows how long steps take: over by 5 s."""
LONG_THEN_SHORT = [*WARM, (10.0, 60_000, 1), (10.1, 200, 1), (12.0, 200, 1)]


def test_a_short_prompt_overtakes_one_that_is_in_the_middle() -> None:
    (*_, long, first, second), _ = run(config_of(PrefillConfig(slo=SLO)), LONG_THEN_SHORT)
    assert ttft_s(first) < 0.3
    assert ttft_s(second) < 0.3
    assert 6.0 < ttft_s(long) < 8.0


def test_a_plain_engine_lets_it_wait() -> None:
    (*_, first, second), _ = run(config_of(None), LONG_THEN_SHORT)
    assert ttft_s(first) > 5.0
    assert ttft_s(second) > 3.0


def test_steps_keep_within_the_itl_target_while_long_prompts_come() -> None:
    jobs = [*WARM, *((10.0 + 0.1 * i, 300, 400) for i in range(8)), (12.0, 20_000, 1)]
    ordered, _ = run(config_of(PrefillConfig(slo=SLO)), jobs)
    plain, _ = run(config_of(None), jobs)
    assert max(s.itl_p99_s for s in ordered[len(WARM) :] if s.output_tokens > 1) <= 0.05
    assert max(s.itl_p99_s for s in plain[len(WARM) :] if s.output_tokens > 1) > 0.1


def test_a_long_prompt_gets_its_turn_under_a_flood_of_short_ones() -> None:
    """As much as the engine can do, for far longer than the long prompt may take."""
    flood = [(10.0 + 0.05 * i, 400, 1) for i in range(2000)]
    jobs = sorted([*WARM, (10.01, 20_000, 1), *flood])
    sequences, _ = run(config_of(PrefillConfig(slo=SLO)), jobs)
    long = next(s for s in sequences if s.prompt_tokens == 20_000)
    assert ttft_s(long) < 60.0


@pytest.mark.parametrize("ordering", ["fcfs", "deadline", "shortest"])
def test_all_end_where_prompts_in_the_middle_fill_the_cache(ordering: str) -> None:
    """Prompts that overtake each other hold blocks that none of them can finish without."""
    random = Random(1)
    jobs = [(0.05 * i, random.choice([30, 300, 1500]), random.randint(1, 60)) for i in range(200)]
    prefill = PrefillConfig(ordering=ordering, slo=SLO)  # type: ignore[arg-type]
    sequences, engine = run(config_of(prefill, kv_blocks=120), jobs)
    assert all(s.finished_s == s.finished_s for s in sequences)
    assert engine.finished == len(jobs)
    assert engine.pool.free == engine.pool.blocks
    engine.pool.check()


def test_first_come_first_served_with_a_fixed_budget_is_the_plain_engine() -> None:
    """Where blocks are not scarce: then only what waits for them differs."""
    random = Random(2)
    jobs = sorted(
        (random.uniform(0.0, 20.0), random.randint(1, 3000), random.randint(1, 80))
        for _ in range(300)
    )
    inside = PrefillConfig(ordering="fcfs", budget="fixed", slo=Slo())
    ordered, _ = run(config_of(inside), jobs)
    plain, _ = run(config_of(None), jobs)
    assert [s.first_token_s for s in ordered] == pytest.approx([s.first_token_s for s in plain])
    assert [s.finished_s for s in ordered] == pytest.approx([s.finished_s for s in plain])


def of_experts() -> StepTable:
    """A step that decodes takes 12 ms; with any part of a prompt 45 ms at least."""
    decode = linear_table((0.012, 0.0, 0.0, 0.0, 0.0)).lines[0]
    mixed_s = tuple(0.045 + 1e-4 * n for n in range(8193))
    return StepTable(lines=(msgspec.structs.replace(decode, mixed_s=mixed_s),))


@pytest.mark.parametrize(
    ("output", "spent"),
    [
        pytest.param(80, 0, id="it ends meanwhile"),
        pytest.param(300, 1, id="it has generated enough meanwhile to be forgiven one gap"),
    ],
)
def test_a_prompt_that_chunks_would_make_late_waits_and_is_computed_in_one_go(
    output: int, spent: int
) -> None:
    slo = Slo(ttft_s=2.0, itl_s=0.06)
    config = EngineConfig(
        kv_blocks=10_000, running_max=64, step_tokens_max=8192, prefill=PrefillConfig(slo=slo)
    )
    jobs = [(3.0 * i, 400 + 50 * i, 60) for i in range(20)]
    jobs = [*jobs, *((70.0 + 2 * i, 300 + 40 * i, 200) for i in range(20))]
    sequences = [Sequence(i, p, o) for i, (_, p, o) in enumerate(jobs)]
    sequences += [Sequence(98, 100, output), Sequence(99, 4000, 2)]
    times = [*(at_s for at_s, _, _ in jobs), 200.0, 200.3]
    for at_s, sequence in zip(times, sequences, strict=True):
        sequence.arrived_s = at_s
    engine = run_engine(
        config, of_experts(), list(zip(times, sequences, strict=True)), make=OrderedEngine
    )
    *_, short, long = sequences
    assert short.itl_p99_s <= 0.06
    assert ttft_s(long) <= 2.0
    assert engine.preemptions == 0
    stall_s = 0.012 * (output - 1)
    assert short.finished_s - short.first_token_s == pytest.approx(
        stall_s + spent * 0.433, abs=0.01
    )


def test_a_target_for_the_mean_lets_single_steps_be_longer() -> None:
    """Decoding alone takes a fifth of the target: what that saves is spent on prompts."""
    jobs = [*WARM, *((10.0 + 0.1 * i, 300, 400) for i in range(8)), (12.0, 20_000, 1)]
    found = []
    for itl in ("p99", "mean"):
        model = ModelBudgetConfig(itl=itl)
        sequences, _ = run(config_of(PrefillConfig(slo=SLO, model=model)), jobs)
        found.append((ttft_s(sequences[-1]), [s.itl_mean_s for s in sequences[len(WARM) : -1]]))
    (late_s, _), (early_s, means_s) = found
    assert early_s < 0.9 * late_s
    assert max(means_s) <= 0.05
