"""A real vLLM with policies inside: they decide its steps, within the knobs, and can be ended."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.vllm_control import PATIENCE_S, Control, EngineLoad
from tests.support.vllm_server import PLUGIN, VllmServer, tiny_model

pytestmark = pytest.mark.heavy

STEP_TOKENS, LONG, SHORT, OUTPUT, CLIENTS = 2048, 3000, 20, 60, 3
ARGUMENTS = (
    *("--load-format", "dummy", "--max-model-len", "4096", "--no-enable-prefix-caching"),
    *("--max-num-seqs", "16", "--max-num-batched-tokens", str(STEP_TOKENS)),
    *("--scheduler-cls", "mileage.vllm_plugin.scheduler_class.make_scheduler"),
)
LAYERS = {"num_hidden_layers": 6, "hidden_size": 384, "intermediate_size": 1024, "head_dim": 64}
HEADS = {"num_attention_heads": 6, "num_key_value_heads": 2}
"""A long prompt takes many times as long as a step that only decodes."""
TARGET_OVER = 5.0
"""The ITL target over the time of a step that only decodes."""
TRIES = 4
"""A machine that gets busy in the middle shifts what was measured before."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, vllm_python: Path) -> Iterator[VllmServer]:
    """A server with our scheduler class."""
    directory = tmp_path_factory.mktemp("vllm")
    model = tiny_model(vllm_python, directory)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | LAYERS | HEADS))
    with VllmServer(
        vllm_python, model, directory, *ARGUMENTS, name="tiny", environment=PLUGIN
    ) as vllm:
        yield vllm


@pytest.fixture
def control(server: VllmServer) -> Iterator[Control]:
    """Its control, with everything as at the start."""
    found = Control(server)
    ask(found, None)
    found.reset()
    yield found
    ask(found, None)
    found.reset()
    found.client.close()


def ask(control: Control, policy: dict[str, Any] | None, lease_s: float | None = None) -> None:
    """Have the policy decide, or none."""
    control.post({"policy": policy, "lease_s": lease_s, "wait_s": 60}).raise_for_status()


def answered(load: EngineLoad, count: int) -> None:
    """Wait until so many more requests have been answered."""
    deadline_s, until = time.monotonic() + 2 * PATIENCE_S, load.answered + count
    while load.answered < until and not load.failures:
        assert time.monotonic() < deadline_s, "no answers"
        time.sleep(0.02)


def decode_s(server: VllmServer) -> float:
    """What a step takes in which short requests decode."""
    with EngineLoad(server, CLIENTS, prompt_tokens=SHORT, output_tokens=OUTPUT) as load:
        answered(load, CLIENTS)
        begun_s = time.monotonic()
        answered(load, CLIENTS)
        took_s = time.monotonic() - begun_s
    assert load.failures == []
    return took_s / OUTPUT


def mixed(server: VllmServer, control: Control, policy: dict[str, Any], prompts: int) -> float:
    """Prompt tokens of the steps in which others decode, on average."""
    short = EngineLoad(server, CLIENTS, prompt_tokens=SHORT, output_tokens=OUTPUT)
    long = EngineLoad(server, 1, prompt_tokens=LONG, output_tokens=2)
    ask(control, policy)
    with short, long:
        answered(long, prompts)
        told = control.get()["policy"]
    assert short.failures == long.failures == []
    assert told["budget"] == policy["budget"]
    assert told["mixed_steps"] > 0
    return float(told["mixed_prefill_tokens"] / told["mixed_steps"])


def test_long_prompts_are_cut_to_what_the_target_leaves(
    server: VllmServer, control: Control
) -> None:
    seen = []
    for _ in range(TRIES):
        plain = mixed(server, control, {"budget": "fixed"}, 4)
        target_s = TARGET_OVER * decode_s(server)
        governed = mixed(server, control, {"budget": "model", "itl_target_s": target_s}, 6)
        seen.append((plain, governed))
        if governed < plain / 2:
            break
    else:
        raise AssertionError(f"steps beside those that decode, by themselves and governed: {seen}")
    assert control.get()["policy"]["steps_bounded"] > 0
    ask(control, None)
    found = control.until("off", lambda document: document["policy"] is None)
    assert found["applied"]["step_tokens_max"] == STEP_TOKENS


def test_in_order_long_prompts_are_held_for_short_ones(
    server: VllmServer, control: Control
) -> None:
    ask(control, {"budget": "fixed", "ordering": "shortest"})
    short = EngineLoad(server, 6, prompt_tokens=SHORT, output_tokens=4)
    long = EngineLoad(server, 1, prompt_tokens=LONG, output_tokens=2)
    with short, long:
        control.until("held", lambda document: document["policy"]["steps_held"] > 3)
        answered(long, 2)
    assert short.failures == long.failures == []


def test_a_policy_stays_below_the_knobs(server: VllmServer, control: Control) -> None:
    control.set(step_tokens_max=64)
    ask(control, {"budget": "fixed"})
    with EngineLoad(server, 2, prompt_tokens=300, output_tokens=4) as load:
        answered(load, 4)
    assert load.failures == []
    (rank,) = control.get()["ranks"]
    assert rank["step_tokens_seen_max"] <= 64
    assert rank["policy"]["step_tokens_max"] == 64


def test_a_policy_ends_with_its_lease(control: Control) -> None:
    ask(control, {"budget": "fixed"}, lease_s=1.0)
    found = control.until("ended", lambda document: document["policy"] is None)
    assert found["reverted"]


@pytest.mark.parametrize(
    ("policy", "param"),
    [
        ({"budget": "best"}, "policy.budget"),
        ({"budget": "model"}, "policy.itl_target_s"),
        ({"budgets": None}, "policy.budgets"),
    ],
)
def test_a_bad_policy_is_refused_by_its_field(
    control: Control, policy: dict[str, Any], param: str
) -> None:
    answer = control.post({"policy": policy})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
    assert control.get()["policy"] is None
