"""The oracle's steps as a fitted engine: what is asked, and that it takes as long as answered."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.support import oracle_engine
from benchmarks.support.oracle_client import Answer, Kernel, Step
from benchmarks.support.oracle_engine import engine_steps, fitted_engine
from benchmarks.support.oracle_setups import Setup
from mileage.core.errors import ConfigError
from mileage.costmodel.fitted_engine import FittedEngine

DEPLOYMENT = Setup("llama-3.1-8b", "h100").deployment()
RUNNING_MAX, STEP_TOKENS_MAX, KV_TOKENS = 48, 512, 100_000


def wanted() -> list[Step]:
    return list(engine_steps(RUNNING_MAX, STEP_TOKENS_MAX, KV_TOKENS))


def made(answer: Answer) -> FittedEngine:
    return fitted_engine(
        DEPLOYMENT,
        wanted(),
        answer,
        told="somebody 1.0",
        running_max=RUNNING_MAX,
        step_tokens_max=STEP_TOKENS_MAX,
        kv_tokens=KV_TOKENS,
    )


def step_s(step: Step) -> float:
    """A wave more beyond 32 requests, which no plane has."""
    wave_s = 0.002 if step.decoding > 32 and not step.prompt_tokens else 0.0
    kv_tokens = step.decoding * step.context_tokens
    return 0.006 + wave_s + 4e-8 * kv_tokens + 2e-5 * (step.decoding + step.prompt_tokens)


def test_every_batch_size_is_asked_for_within_the_memory_and_the_steps_limit() -> None:
    steps = wanted()
    assert {s.decoding for s in steps if s.kind == "decode"} == set(range(1, RUNNING_MAX + 1))
    assert all(s.decoding * s.context_tokens <= KV_TOKENS for s in steps)
    assert all(s.decoding + s.prompt_tokens <= STEP_TOKENS_MAX for s in steps)
    assert max(s.prompt_tokens for s in steps) == STEP_TOKENS_MAX
    assert {s.kind for s in steps} == {"decode", "prefill", "mixed"}


def test_the_engine_takes_as_long_as_the_oracle_said_steps_of_single_sizes_too() -> None:
    steps = wanted()
    engine = made(Answer([(Kernel("all", step_s(step), "silicon"),) for step in steps], None))
    again = FittedEngine.from_json(engine.to_json())
    assert again == engine
    table = engine.step_table(RUNNING_MAX, STEP_TOKENS_MAX)
    for step in steps:
        found_s = table.step_s(
            step.decoding, step.decoding * step.context_tokens, step.prompt_tokens
        )
        assert found_s == pytest.approx(step_s(step), rel=0.02)
    assert engine.steps.engine == "somebody 1.0, 1 x H100-SXM5-80GB"
    assert (engine.running_max, engine.step_tokens_max) == (RUNNING_MAX, STEP_TOKENS_MAX)
    assert engine.kv_tokens_max == KV_TOKENS
    assert engine.seen.running_max == RUNNING_MAX
    assert engine.seen.prefill_step_tokens_max == STEP_TOKENS_MAX


def test_an_oracle_without_any_of_the_kernels_is_told() -> None:
    with pytest.raises(ConfigError, match="no rows of that"):
        made(Answer([None for _ in wanted()], "KeyError: no rows of that"))


@pytest.mark.parametrize(
    ("model", "gpu", "installed", "code", "said"),
    [
        pytest.param("llama-3.1-8b", "h100", False, 3, "make oracle", id="no oracle"),
        pytest.param("llama-3.1-8", "h100", True, 2, "nearest", id="unknown model"),
        pytest.param("llama-3.1-8b", "h20", True, 2, "of the oracle", id="unknown GPU"),
        pytest.param("llama-3.1-70b", "h100", True, 2, "would do", id="does not fit"),
    ],
)
def test_bad_arguments_give_one_clear_error_and_no_file(
    model: str,
    gpu: str,
    installed: bool,
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    python = tmp_path / "python"
    if installed:
        python.touch()
    monkeypatch.setattr(oracle_engine, "ORACLE", python)
    out = tmp_path / "engine.json"
    assert oracle_engine.main(["--model", model, "--gpu", gpu, "--out", str(out)]) == code
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert said in error
    assert not out.exists()
