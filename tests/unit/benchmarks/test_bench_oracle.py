"""The benchmark beside an oracle: what it asks, how it reads answers, and what it makes of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from benchmarks import oracle
from benchmarks.support import oracle_client
from benchmarks.support.measured import Measured
from benchmarks.support.oracle_client import Answer, Kernel, Step, ask, query, seconds
from benchmarks.support.oracle_kernels import (
    Compared,
    compare,
    mdape,
    oracle_kinds,
    our_kinds,
    spread,
)
from benchmarks.support.oracle_measured import Judgement, loop_s
from benchmarks.support.oracle_setups import REQUESTS_MAX, SETUPS, STEP_TOKENS_MAX, Setup, steps
from benchmarks.support.steptime_fit import Predictor
from mileage.costmodel.deployment import Deployment
from mileage.costmodel.efficiency_table import FITTED
from mileage.costmodel.roofline import report

LLAMA = Setup("llama-3.1-8b", "h100")
STUB = """
class EngineHandle:
    @classmethod
    def compile(cls, model, system, backend, **options):
        if system == "nowhere":
            raise ValueError("no tables\\nof that system")
        return cls()

    def run_static_per_op(self, *, batch_size, isl, osl, mode):
        assert osl == 2
        if batch_size == 7:
            raise KeyError("no such rows at /some/where")
        found = [(mode, float(batch_size * isl), 0.0, "silicon")]
        return ([], found) if mode == "static_gen" else (found, [])

    def mixed_step_breakdown_per_op(self, context, decoding, isl, osl):
        shared = [("shared", float(context), 0.0, "silicon")]
        return shared, [("prompt", float(isl), 0.0, "mixed")], [("decode", float(osl), 0.0, "x")]
"""


def ours(deployment: Deployment, step: Step) -> float:
    table = deployment.step_table(REQUESTS_MAX, STEP_TOKENS_MAX)
    tokens = step.prompt_tokens
    pairs = tokens * (tokens + 1) / 2
    return table.step_s(step.decoding, step.decoding * step.context_tokens, tokens, pairs)


def deployment(setup: Setup, **changes: Any) -> Deployment:
    return msgspec.structs.replace(setup.deployment(), **changes)


@pytest.mark.parametrize("setup", SETUPS, ids=str)
def test_every_set_up_fits_and_has_a_question(setup: Setup) -> None:
    own = setup.deployment()
    wanted = list(steps(own))
    question = query(own, wanted)
    assert question is not None
    assert question["steps"] == [step._asdict() for step in wanted]
    room = own.kv_blocks(16, STEP_TOKENS_MAX, REQUESTS_MAX) * 16
    assert {step.kind for step in wanted} == {"decode", "prefill", "mixed"}
    assert all(s.decoding * s.context_tokens + s.prompt_tokens <= room for s in wanted)


def test_a_dense_model_is_asked_for_in_its_precision() -> None:
    question = query(Setup("llama-3.1-70b", "h200", 2, weights="fp8").deployment(), [])
    assert question is not None
    assert question["model"] == "meta-llama/Meta-Llama-3.1-70B"
    assert (question["system"], question["backend"]) == ("h200_sxm", "vllm")
    assert question["options"] == {
        "tp_size": 2,
        "attention_dp_size": 1,
        "gemm_quant_mode": "fp8",
        "kvcache_quant_mode": "bfloat16",
        "fmha_quant_mode": "bfloat16",
    }


@pytest.mark.parametrize(
    ("setup", "model", "options"),
    [
        pytest.param(
            Setup("qwen3-30b-a3b", "h100"),
            "Qwen/Qwen3-30B-A3B",
            {"gemm_quant_mode": "bfloat16", "moe_quant_mode": "bfloat16", "moe_tp_size": 1},
            id="experts have a precision too",
        ),
        pytest.param(
            Setup("qwen3-235b-a22b", "h200", 4, weights="fp8"),
            "Qwen/Qwen3-235B-A22B-FP8",
            {"gemm_quant_mode": None, "moe_quant_mode": None, "moe_tp_size": 4},
            id="a checkpoint in blocks of FP8 is a model of its own",
        ),
        pytest.param(
            Setup("deepseek-v3", "h200", 8, weights="fp8", expert_parallel=4),
            "deepseek-ai/DeepSeek-V3",
            {"gemm_quant_mode": None, "moe_quant_mode": None, "moe_tp_size": 2, "moe_ep_size": 4},
            id="experts are spread over groups, and cut in each",
        ),
    ],
)
def test_mixtures_are_asked_for_as_they_are_spread(
    setup: Setup, model: str, options: dict[str, Any]
) -> None:
    question = query(setup.deployment(), [])
    assert question is not None
    assert question["model"] == model
    assert {name: question["options"].get(name) for name in options} == options


@pytest.mark.parametrize(
    "unknown",
    [
        pytest.param(Setup("llama-3.1-8b", "h20").deployment(), id="GPU"),
        pytest.param(Setup("llama-3.2-1b", "h100").deployment(), id="model"),
        pytest.param(Setup("gpt-oss-120b", "h200", 4).deployment(), id="precision"),
        pytest.param(deployment(LLAMA, pipeline_parallel=2), id="pipeline"),
        pytest.param(deployment(LLAMA, weights="int8"), id="integers"),
    ],
)
def test_what_the_oracle_does_not_know_is_not_asked(unknown: Deployment) -> None:
    assert query(unknown, [Step(1, 256)]) is None


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "aiconfigurator_core"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "sdk.py").write_text(STUB)
    info = tmp_path / "aiconfigurator_core-9.9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: aiconfigurator-core\nVersion: 9.9\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(oracle_client, "ORACLE", Path(sys.executable))


@pytest.mark.usefixtures("stub")
def test_each_kind_of_step_is_asked_for_in_its_own_way() -> None:
    wanted = [Step(4, 100), Step(0, 0, 50), Step(3, 80, 50), Step(3, 50, 50), Step(7, 100)]
    question = query(LLAMA.deployment(), wanted)
    assert question is not None
    version, answers = ask([question, {**question, "system": "nowhere"}])
    assert version == "9.9"
    decode, prefill, mixed, short, failed = answers[0].steps
    assert decode == (Kernel("static_gen", 0.4, "silicon"),)
    assert prefill == (Kernel("static_ctx", 0.05, "silicon"),)
    assert mixed is not None
    assert [kernel.seconds for kernel in mixed] == [0.05, 0.05, 0.06]
    assert short is not None
    assert short[-1].seconds == 0.002
    assert failed is None
    assert answers[0].reason == "KeyError: 'no such rows"
    assert answers[1] == Answer([None] * 5, "ValueError: no tables")


@pytest.mark.heavy
@pytest.mark.skipif(not oracle_client.ORACLE.exists(), reason="not installed: make oracle")
def test_the_real_oracle_answers_every_kind_of_step() -> None:
    own = LLAMA.deployment()
    wanted = [Step(16, 1024), Step(0, 0, 512), Step(16, 512, 512)]
    question = query(own, wanted)
    assert question is not None
    _, (answer,) = ask([question])
    assert answer.reason is None
    found = compare(LLAMA, wanted, answer)
    assert all(0.5 < ratio < 2.0 for ratios in found.ratios.values() for ratio in ratios)
    assert set(found.ratios) == {"decode", "prefill", "mixed"}
    assert min(found.measured) > 0.8


def test_an_oracle_that_fails_as_a_whole_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracle_client, "ORACLE", Path("/bin/false"))
    with pytest.raises(RuntimeError, match="the oracle failed"):
        ask([])


@pytest.mark.parametrize(
    "setup",
    [
        pytest.param(LLAMA, id="dense"),
        pytest.param(Setup("deepseek-v3", "h200", 8, weights="fp8", expert_parallel=8), id="MLA"),
    ],
)
@pytest.mark.parametrize("step", [Step(16, 1024), Step(0, 0, 512), Step(16, 512, 512)], ids=str)
def test_our_kinds_of_operators_add_up_to_the_step(setup: Setup, step: Step) -> None:
    own = setup.deployment()
    assert sum(our_kinds(own, step).values()) == pytest.approx(ours(own, step), rel=1e-6)
    whole = report(
        own,
        batch=step.decoding,
        context_tokens=step.context_tokens or step.prompt_tokens,
        prefill_tokens=step.prompt_tokens,
    )
    assert whole.step_s == pytest.approx(ours(own, step), rel=1e-6)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("generation_qkv_gemm", "matrices"),
        ("context_logits_gemm", "matrices"),
        ("context_attention", "attention"),
        ("generation_mla_block", "attention"),
        ("generation_moe_overlap", "experts"),
        ("context_shared_gate_up_gemm", "experts"),
        ("context_router_gemm", "experts"),
        ("context_moe_pre_dispatch", "links"),
        ("generation_ar_1", "links"),
        ("context_embedding_ar", "links"),
        ("generation_tp_allreduce", "links"),
        ("generation_add_norm_1", "small kernels"),
        ("context_act_gate", "small kernels"),
    ],
)
def test_the_oracles_operators_are_of_a_kind(name: str, kind: str) -> None:
    assert oracle_kinds([Kernel(name, 0.5, "silicon")]) == {kind: 0.5}


def test_an_oracle_twice_as_fast_gives_a_ratio_of_two_and_gaps_are_counted() -> None:
    own = LLAMA.deployment()
    wanted = [Step(16, 1024), Step(0, 0, 512), Step(16, 512, 512), Step(1, 256)]
    answers = [
        (
            Kernel("generation_qkv_gemm", ours(own, step) * 0.4, "silicon"),
            Kernel("generation_add_norm_1", ours(own, step) * 0.1, "empirical"),
        )
        for step in wanted[:3]
    ]
    found = compare(LLAMA, wanted, Answer([*answers, None], "KeyError: no rows"))
    assert {kind: list(map(float, each)) for kind, each in found.ratios.items()} == {
        kind: [pytest.approx(2.0)] for kind in ("decode", "prefill", "mixed")
    }
    assert found.measured == [pytest.approx(0.8)] * 3
    assert (found.missing, found.reason) == (1, "KeyError: no rows")
    ours_s, theirs_s = found.kinds["decode", "matrices"]
    assert theirs_s == pytest.approx(ours(own, wanted[0]) * 0.4)
    assert 0.0 < ours_s < ours(own, wanted[0])


def test_errors_count_both_ways() -> None:
    assert mdape([0.5, 1.0, 1.2]) == pytest.approx(0.2)
    assert spread([1.0] * 9 + [5.0]) == pytest.approx((1.0, 1.0, 1.4))
    assert mdape([]) is None
    assert spread([]) is None


def test_figures_are_of_all_steps_and_of_each_set_up() -> None:
    fast = Compared(LLAMA, {"decode": [1.1, 1.1, 1.3], "prefill": [0.8]}, missing=2, reason="why")
    slow = Compared(SETUPS[1], {"decode": [0.9]})
    found = oracle.figures([fast, slow])
    assert found["oracle_decode_mdape"] == 0.1
    assert found["oracle_prefill_mdape"] == 0.2
    assert found["oracle_mixed_mdape"] is None
    assert (found["rows"], found["missing"]) == (5, 2)
    named = found["setups"]
    assert isinstance(named, list)
    assert named[0]["setup"] == str(LLAMA)
    assert named[0]["prefill"] == [0.8, 0.8, 0.8]
    assert named[1]["mixed"] is None


def row(**changes: Any) -> Measured:
    settings: dict[str, Any] = {
        "source_class": "somebody",
        "deployment": LLAMA.deployment(),
        "requests": 32.0,
        "prompt_tokens": 1024.0,
        "output_tokens": 256.0,
        "step_tokens_max": 8192,
        "running_max": 256,
        "same_length": False,
        "tpot_s": 0.01,
        "ttft_s": 0.1,
    }
    return Measured(**{**settings, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="prompts of one step"),
        pytest.param({"requests": 1.0}, id="one request"),
        pytest.param({"prompt_tokens": 6000.0, "step_tokens_max": 2048}, id="chunks"),
        pytest.param({"same_length": True, "requests": 16.0}, id="prompts that share steps"),
    ],
)
def test_the_closed_loop_with_our_own_steps_gives_our_own_latencies(
    changes: dict[str, Any],
) -> None:
    one = row(**changes)
    found = Predictor([one]).latencies(FITTED)
    outputs = one.output_tokens - 1.0
    share = outputs * found.tpot_s[0] / (outputs * found.tpot_s[0] + found.ttft_s[0])
    decoding = max(1, round(float(share * one.requests)))
    context = round(one.prompt_tokens + one.output_tokens / 2.0)
    room = one.step_tokens_max - decoding
    chunk = round(min(one.prompt_tokens, room))
    table = one.deployment.step_table(REQUESTS_MAX, STEP_TOKENS_MAX)
    # Chunks of a prompt have its pairs between them.
    pairs = chunk / one.prompt_tokens * one.prompt_tokens * (one.prompt_tokens + 1.0) / 2.0
    decode_s = table.step_s(decoding, decoding * context)
    mixed_s = table.step_s(decoding, decoding * context, chunk, pairs)
    tpot_s, ttft_s = loop_s(one, decoding, decode_s, mixed_s, FITTED)
    assert tpot_s == pytest.approx(found.tpot_s[0], rel=0.04)
    assert ttft_s == pytest.approx(found.ttft_s[0], rel=0.04)


def test_measured_figures_leave_out_what_was_not_measured() -> None:
    judged = [
        Judgement(row(), ours_tpot=1.1, oracle_tpot=0.7, ours_ttft=1.5, oracle_ttft=1.2),
        Judgement(row(), ours_tpot=0.9, oracle_tpot=0.8, ours_ttft=None, oracle_ttft=None),
    ]
    assert oracle.measured_figures(judged) == {
        "measured_rows": 2,
        "measured_tpot_mdape_ours": 0.1,
        "measured_tpot_mdape_oracle": 0.25,
        "measured_ttft_mdape_ours": 0.5,
        "measured_ttft_mdape_oracle": 0.2,
    }
    assert oracle.measured_figures([]) == {}


def test_without_the_oracle_there_is_no_verdict_and_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(oracle, "ORACLE", Path("/nowhere/python"))
    assert oracle.main(["--json"]) == 3
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"] == "no verdict"
    assert document["reasons"] == ["the oracle is not installed: make oracle"]


def test_kernels_follow_each_other() -> None:
    assert np.isclose(seconds([Kernel("a", 0.25, "silicon"), Kernel("b", 0.5, "x")]), 0.75)
