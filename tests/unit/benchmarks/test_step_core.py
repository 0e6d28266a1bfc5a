"""The step engine's scheduler against closed forms: what takes how long, and in which order."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from benchmarks.support.step_core import BLOCK_TOKENS, CoreConfig, Sequence, StepCore
from benchmarks.support.step_model import MODELS, Plane, StepModel

FLAT = StepModel(compute=Plane(base_s=1.0), memory=Plane())
"""Every step takes a second."""
LINEAR = StepModel(
    compute=Plane(base_s=1e-9, running_s=2.0, prefill_token_s=0.5), memory=Plane(base_s=0.5)
)


def core(model: StepModel = FLAT, **fields: Any) -> StepCore:
    return StepCore(CoreConfig(model=model, **{"noise_ratio": 0.0, **fields}), Random(1))


def simulate(
    engine: StepCore, arrivals: list[tuple[float, Sequence]]
) -> dict[Sequence, list[float]]:
    """Run until all are answered: when each sequence's tokens came."""
    tokens: dict[Sequence, list[float]] = {sequence: [] for _, sequence in arrivals}
    now_s, left = 0.0, sorted(arrivals, key=lambda pair: pair[0])
    while left or engine.waiting or engine.running:
        while left and left[0][0] <= now_s:
            engine.add(left.pop(0)[1])
        step = engine.begin(now_s)
        if step is None:
            due_s = engine.due_s()
            now_s = min(([left[0][0]] if left else []) + ([] if due_s is None else [due_s]))
            continue
        now_s += step.duration_s
        for sequence in engine.end():
            tokens[sequence].append(now_s)
    return tokens


@pytest.mark.parametrize(
    ("step", "seconds"),
    [
        pytest.param((1, 0, 0), 0.030, id="one sequence: the weights are read"),
        pytest.param((18, 0, 0), 0.030, id="below the knee another costs nothing"),
        pytest.param((32, 0, 0), 0.050, id="beyond it every sequence costs"),
        pytest.param((0, 0, 500), 0.062, id="a long prompt is computed"),
        pytest.param((4, 40_000, 0), 0.050, id="long contexts are read"),
    ],
)
def test_a_step_takes_as_long_as_the_slower_plane(
    step: tuple[int, int, int], seconds: float
) -> None:
    assert MODELS["small"].step_s(*step) == pytest.approx(seconds)


def test_a_request_alone_takes_its_chunks_and_then_a_step_for_each_token() -> None:
    engine, request = core(step_tokens_max=256), Sequence(600, 4, 0.0)
    (times,) = simulate(engine, [(0.0, request)]).values()
    assert times == [3.0, 4.0, 5.0, 6.0]  # 256 + 256 + 88
    assert engine.counters.prefill_tokens == 600
    assert engine.counters.output_tokens == 4


def test_the_work_of_a_request_is_what_the_model_says() -> None:
    engine, request = core(LINEAR), Sequence(100, 11, 0.0)
    (times,) = simulate(engine, [(0.0, request)]).values()
    assert times[-1] == pytest.approx(LINEAR.work_s(100, 11))
    assert times[-1] == pytest.approx(0.5 * 100 + 2.0 * 10)


def test_a_busy_engine_gives_the_throughput_of_its_compute_plane() -> None:
    engine = core(LINEAR, running_max=32)
    requests = [(0.0, Sequence(20, 10, 0.0)) for _ in range(200)]
    end_s = max(times[-1] for times in simulate(engine, requests).values())
    assert end_s == pytest.approx(200 * LINEAR.work_s(20, 10), rel=1e-6)


def test_decodes_come_first_and_prompts_in_order_of_arrival() -> None:
    engine = core(step_tokens_max=100, running_max=10)
    first, second, third = (Sequence(tokens, 5, 0.0) for tokens in (60, 60, 90))
    tokens = simulate(engine, [(0.0, first), (0.0, second), (0.0, third)])
    assert tokens[first] == [1.0, 2.0, 3.0, 4.0, 5.0]  # nothing holds it up
    # The first step has 40 tokens left for the second prompt; the next one, beside a decode and the
    # second's last 20, has 79 left for the third.
    assert tokens[second][0] == 2.0
    assert tokens[third][0] == 3.0


def test_slots_bound_what_runs_at_once() -> None:
    engine = core(running_max=2)
    tokens = simulate(engine, [(0.0, Sequence(1, 3, 0.0)) for _ in range(6)])
    assert sorted(times[-1] for times in tokens.values()) == [3.0, 3.0, 6.0, 6.0, 9.0, 9.0]
    assert engine.counters.running_max == 2


def test_the_youngest_gives_way_where_the_cache_is_full_and_is_computed_anew() -> None:
    engine = core(kv_blocks=4)
    old, young = Sequence(BLOCK_TOKENS, 33, 0.0), Sequence(BLOCK_TOKENS, 20, 0.0)
    tokens = simulate(engine, [(0.0, old), (0.0, young)])
    assert [len(times) for times in tokens.values()] == [33, 20]
    assert engine.counters.preemptions == 1
    assert tokens[old] == [float(n) for n in range(1, 34)]  # not held up
    # Two blocks each, until both need a third one at once: what the young one had, its prompt and
    # 16 tokens, is computed a second time.
    assert engine.counters.prefill_tokens == 2 * BLOCK_TOKENS + 2 * BLOCK_TOKENS + 1
    assert engine.blocks_free == 4


def test_a_request_that_cannot_ever_fit_is_refused() -> None:
    engine = core(kv_blocks=4)
    with pytest.raises(ValueError, match="KV cache"):
        engine.add(Sequence(60, 5, 0.0))
    with pytest.raises(ValueError, match="at least one token"):
        engine.add(Sequence(5, 0, 0.0))


def test_what_is_aborted_leaves_its_blocks_and_gives_no_token() -> None:
    engine = core(kv_blocks=8)
    stays, goes = Sequence(20, 3, 0.0), Sequence(20, 3, 0.0)
    engine.add(stays)
    engine.add(goes)
    assert engine.begin(0.0) is not None
    engine.abort(goes)
    engine.abort(goes)
    assert engine.end() == [stays]
    assert (len(engine.running), engine.counters.aborted) == (1, 1)
    engine.abort(stays)
    assert engine.begin(1.0) is None
    assert engine.blocks_free == 8


def test_work_is_told_by_tag() -> None:
    engine = core()
    simulate(engine, [(0.0, Sequence(10, 4, 0.0, "a")), (0.0, Sequence(7, 1, 0.0, "b"))])
    assert engine.work == {"a": [10, 3], "b": [7, 0]}


def test_a_batch_waits_for_its_members_and_answers_them_all_at_its_end() -> None:
    engine = core(batch_size=3, batch_delay_s=100.0)
    requests = [(float(at), Sequence(4, n, float(at))) for at, n in enumerate((2, 5, 3, 1))]
    tokens = simulate(engine, requests)
    # The third comes at 2 s; the batch takes as long as its longest answer.
    assert [tokens[request] for _, request in requests[:3]] == [[7.0], [7.0], [7.0]]
    assert tokens[requests[3][1]] == [104.0]  # 100 s after it came, then a step
    assert engine.blocks_free == engine.config.kv_blocks


def test_a_batch_runs_on_when_a_member_left() -> None:
    engine = core(batch_size=2)
    stays, leaves = Sequence(4, 1, 0.0), Sequence(4, 2, 0.0)
    engine.add(stays)
    engine.add(leaves)
    engine.begin(0.0)
    engine.abort(leaves)
    assert engine.end() == []
    engine.begin(1.0)
    assert engine.end() == [stays, leaves]


def test_noise_is_seeded_and_has_its_size() -> None:
    def durations(seed: int) -> list[float]:
        engine = StepCore(CoreConfig(model=FLAT, noise_ratio=0.1), Random(seed))
        engine.add(Sequence(1, 2000, 0.0))
        found = []
        for _ in range(2000):
            step = engine.begin(0.0)
            assert step is not None
            found.append(step.duration_s)
            engine.end()
        return found

    first = durations(3)
    mean = sum(first) / len(first)
    spread = (sum((value - mean) ** 2 for value in first) / len(first)) ** 0.5
    assert first == durations(3)
    assert first != durations(4)
    assert mean == pytest.approx(1.0, abs=0.01)
    assert spread == pytest.approx(0.1, rel=0.1)
    assert all(0.7 <= value <= 1.3 for value in first)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        pytest.param({"running_max": 600}, "running_max", id="more than a step can take"),
        pytest.param({"running_max": 0}, "running_max", id="no sequence"),
        pytest.param({"kv_blocks": 0}, "kv_blocks", id="no cache"),
        pytest.param({"noise_ratio": 0.5}, "noise_ratio", id="steps of negative time"),
        pytest.param({"batch_size": 300}, "batch_size", id="a batch beyond the slots"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(
    fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        core(**fields)


def test_a_plane_has_no_negative_coefficients_and_a_step_takes_time() -> None:
    with pytest.raises(ValueError, match="negative"):
        Plane(running_s=-1.0)
    with pytest.raises(ValueError, match="some time"):
        StepModel(compute=Plane(), memory=Plane(running_s=1.0))
