"""Learning an engine from records: step times, limits and habits that are known are found again."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mileage.core.errors import ConfigError
from mileage.costmodel.fitted_engine import FittedEngine
from mileage.costmodel.learn_engine import KnownLimits, learn_engine
from mileage.costmodel.served import ServedRequest
from tests.support.lockstep_engine import arrivals, serve

BUDGET, SLOTS, CACHED = 256, 8, 24
PLANE = (0.002, 0.006, 1.5e-5, 0.003)


def cpu_s(decoding: int, context: int, prefill: int) -> float:
    """Like a small model on one core: all compute."""
    start_s, request_s, kv_s, prefill_s = PLANE
    return start_s + request_s * decoding + kv_s * context + prefill_s * prefill


def kernel_s(decoding: int, context: int, prefill: int) -> float:
    """The same with kernels that take four requests as fast as three."""
    wasted = 0.006 if not prefill and decoding == 3 else 0.0
    return cpu_s(decoding, context, prefill) + wasted


def gpu_s(decoding: int, context: int, prefill: int) -> float:
    """Bound by memory below, by compute above."""
    memory_s = 0.02 + 2e-8 * context
    compute_s = 0.004 + 5e-5 * (decoding + prefill)
    return max(memory_s, compute_s)


def recorded(**options: object) -> list[ServedRequest]:
    load = arrivals(160, 0.9, 7, prompt=(30, 400), output=(4, 60))
    settings = {"slots": SLOTS, "step_tokens_max": BUDGET, "cached": CACHED, "before_s": 0.004}
    return serve(load, cpu_s, **{**settings, **options})  # type: ignore[arg-type]


def test_steps_limits_and_habits_are_found_again() -> None:
    fitted = learn_engine(recorded(), model="small", engine="cpu")
    assert (fitted.kind, fitted.model, fitted.steps.engine) == ("steps", "small", "cpu")
    assert fitted.steps.error_ratio < 1e-3
    assert len(fitted.steps.planes) == 1
    assert fitted.steps.planes[0] == pytest.approx(PLANE, rel=0.02)
    assert fitted.step_tokens_max == BUDGET
    assert fitted.shared_prompt_tokens == CACHED
    assert fitted.first_token_s == pytest.approx(0.004, abs=5e-4)
    assert fitted.noise_ratio < 0.01
    assert fitted.seen.requests == 160
    assert fitted.seen.running_max == fitted.running_max == SLOTS
    assert 256 < fitted.seen.prompt_tokens_max <= 400
    assert fitted.seen.prefill_step_tokens_max <= BUDGET


def test_a_late_gateway_moves_little() -> None:
    fitted = learn_engine(recorded(jitter_s=0.004))
    assert fitted.steps.planes[0] == pytest.approx(PLANE, rel=0.15, abs=5e-4)
    assert fitted.step_tokens_max == BUDGET


def test_answers_without_token_times_tell_the_mean_step() -> None:
    served = [replace(each, token_times_s=()) for each in recorded()]
    fitted = learn_engine(served)
    assert fitted.kind == "answers"
    for load in ((1, 200, 0), (4, 900, 0), (8, 1600, 0)):
        table = fitted.steps.step_table(8, BUDGET)
        assert table.step_s(*load) == pytest.approx(cpu_s(*load), rel=0.2)
    assert fitted.steps.planes[0][3] == pytest.approx(PLANE[3], rel=0.15)
    assert fitted.noise_ratio == 0.0


def test_what_is_told_goes_before_what_is_seen() -> None:
    limits = KnownLimits(running_max=16, step_tokens_max=256, kv_tokens_max=16_384)
    fitted = learn_engine(recorded(), limits=limits)
    assert (fitted.running_max, fitted.running_max_told) == (16, True)
    assert (fitted.step_tokens_max, fitted.step_tokens_told) == (256, True)
    assert fitted.kv_tokens_max == 16_384


def test_batch_sizes_that_a_kernel_does_not_like_are_learned_one_by_one() -> None:
    load = arrivals(240, 1.2, 7, prompt=(30, 200), output=(10, 60))
    served = serve(load, kernel_s, slots=SLOTS, step_tokens_max=BUDGET)
    table = learn_engine(served).step_table(SLOTS, BUDGET)
    for decoding in (2, 3, 4):
        context = 150 * decoding
        measured = kernel_s(decoding, context, 0)
        assert table.step_s(decoding, context) == pytest.approx(measured, rel=0.05)


def test_a_step_that_memory_bounds_or_compute_is_two_planes() -> None:
    load = arrivals(400, 3.0, 7, prompt=(50, 3000), output=(10, 100))
    fitted = learn_engine(serve(load, gpu_s, slots=64, step_tokens_max=2048))
    table = fitted.step_table(64, 2048)
    assert len(fitted.steps.planes) == 2
    for loads in ((8, 10_000, 0), (8, 10_000, 1500), (2, 1000, 64)):
        assert table.step_s(*loads) == pytest.approx(gpu_s(*loads), rel=0.1)


def test_what_all_prompts_share_is_in_the_steps_and_not_in_the_prompts() -> None:
    fitted = learn_engine(recorded())
    whole, told = fitted.steps.step_table(8, BUDGET), fitted.step_table(8, BUDGET)
    context = 4 * 300
    assert told.step_s(4, context - 4 * CACHED) == pytest.approx(whole.step_s(4, context))


def test_it_survives_json() -> None:
    fitted = learn_engine(recorded(), model="модель")
    assert FittedEngine.from_json(fitted.to_json()) == fitted


@pytest.mark.parametrize(
    ("change", "key"),
    [
        pytest.param({"running_max": 0}, "running_max", id="an engine that runs nothing"),
        pytest.param({"step_tokens_max": 4}, "running_max", id="steps too small to decode in"),
        pytest.param({"kv_tokens_max": 0}, "kv_tokens_max", id="no cache"),
        pytest.param({"first_token_s": -1.0}, "first_token_s", id="tokens before requests"),
        pytest.param({"noise_ratio": 0.5}, "noise_ratio", id="nothing but noise"),
    ],
)
def test_what_no_engine_does_is_refused(change: dict[str, object], key: str) -> None:
    fitted = learn_engine(recorded())
    with pytest.raises(ConfigError, match=key):
        replace(fitted, **change)


def test_a_file_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="simulate fit"):
        FittedEngine.from_json(b'{"steps": 1}')


@pytest.mark.parametrize(
    "served",
    [
        pytest.param([], id="no answer"),
        pytest.param([replace(recorded()[0], first_s=None, token_times_s=())], id="no stream"),
        pytest.param([replace(e, token_times_s=()) for e in recorded()[:5]], id="few answers"),
    ],
)
def test_too_little_is_refused(served: list[ServedRequest]) -> None:
    with pytest.raises(ConfigError, match="samples"):
        learn_engine(served)
