"""What can be changed in several versions and settings of vLLM, and why not."""

from __future__ import annotations

from enum import Enum
from types import SimpleNamespace
from typing import Any

import pytest

from mileage.policy.engine_knobs import KNOBS
from mileage.vllm_plugin.capability import probe, probe_calls
from tests.support.scheduler_versions import core_of


class Mode(Enum):
    """vLLM's CUDAGraphMode."""

    NONE = 0
    FULL_DECODE_ONLY = 2


CHUNKS_OFF = "chunked prefill is off: a prompt has to fit into a step whole"
WHOLE_IMAGES = "disable_chunked_mm_input is on: an image has to fit into a step whole"


@pytest.mark.parametrize(
    ("options", "cannot"),
    [
        pytest.param({}, {}, id="0.32: everything"),
        pytest.param(
            {"without": ("max_num_active_reqs",)},
            {"active_max": "this vLLM's scheduler has no max_num_active_reqs"},
            id="before September 2026: no admission gate",
        ),
        pytest.param(
            {"without": ("max_num_active_reqs", "long_prefill_token_threshold")},
            {
                "active_max": "this vLLM's scheduler has no max_num_active_reqs",
                "long_prefill_tokens_max": "this vLLM's scheduler has no "
                "scheduler_config.long_prefill_token_threshold",
            },
            id="the first V1: no threshold for long prompts",
        ),
        pytest.param(
            {"limits": {"enable_chunked_prefill": False}},
            {"step_tokens_max": CHUNKS_OFF, "long_prefill_tokens_max": CHUNKS_OFF},
            id="whole prompts",
        ),
        pytest.param(
            {
                "limits": {"disable_chunked_mm_input": True},
                "model": {"is_multimodal_model": True},
            },
            {"step_tokens_max": WHOLE_IMAGES, "long_prefill_tokens_max": WHOLE_IMAGES},
            id="whole images",
        ),
        pytest.param(
            {"scheduler": {"max_num_scheduled_tokens": "many"}},
            {"step_tokens_max": "this vLLM's scheduler has no max_num_scheduled_tokens"},
            id="an attribute that means something else by now",
        ),
    ],
)
def test_each_knob_or_why_not(options: dict[str, Any], cannot: dict[str, str]) -> None:
    facts = probe(core_of(**options))
    assert {n: why for n, why in facts.capabilities.items() if why is not True} == cannot
    assert set(facts.capabilities) == set(KNOBS)
    assert {n for n, can in facts.capabilities.items() if can is True} <= set(facts.bounds)


@pytest.mark.parametrize(
    ("scheduler", "low"),
    [
        pytest.param({}, 1, id="a token"),
        pytest.param({"num_spec_tokens": 3}, 4, id="a token and those that are guessed"),
        pytest.param({"num_spec_tokens": 3, "num_prefill_lookahead": 2}, 6, id="and looked ahead"),
        pytest.param({"need_mamba_block_aligned_split": True}, 17, id="a block of Mamba's state"),
    ],
)
def test_the_lowest_budget_lets_one_request_go_on(scheduler: dict[str, Any], low: int) -> None:
    facts = probe(core_of(scheduler=scheduler))
    assert facts.bounds["step_tokens_max"] == (low, 2048)
    assert facts.bounds["long_prefill_tokens_max"] == (low, 4096)
    assert facts.prompt_block == (low - 1 if low == 17 else 0)


def test_the_highest_values_are_those_of_the_start() -> None:
    facts = probe(core_of(scheduler={"max_num_scheduled_tokens": 1000, "max_num_active_reqs": 20}))
    assert facts.bounds["step_tokens_max"][1] == 1000
    # The cap may rise to the slots that there are: what was started with is a choice, too.
    assert facts.bounds["active_max"] == (1, 64)
    assert facts.start.active_max == 20


@pytest.mark.parametrize(
    ("compilation", "model", "scheduler", "sizes"),
    [
        pytest.param({}, {}, {}, (), id="no graphs in this version"),
        pytest.param(
            {"cudagraph_mode": Mode.FULL_DECODE_ONLY, "cudagraph_capture_sizes": [8, 1, 4, 2]},
            {},
            {},
            (1, 2, 4, 8),
            id="ascending",
        ),
        pytest.param(
            {"cudagraph_mode": Mode.NONE, "cudagraph_capture_sizes": [1, 2]}, {}, {}, (), id="off"
        ),
        pytest.param(
            {"cudagraph_mode": Mode.FULL_DECODE_ONLY, "cudagraph_capture_sizes": [1, 2]},
            {"enforce_eager": True},
            {},
            (),
            id="eager",
        ),
        pytest.param(
            {"cudagraph_mode": Mode.FULL_DECODE_ONLY, "cudagraph_capture_sizes": [4, 6, 8, 16]},
            {},
            {"num_spec_tokens": 3},
            (1, 2, 4),
            id="requests of four tokens each",
        ),
    ],
)
def test_graph_sizes_are_in_requests(
    compilation: dict[str, Any],
    model: dict[str, Any],
    scheduler: dict[str, Any],
    sizes: tuple[int, ...],
) -> None:
    core = core_of(compilation=compilation, model=model, scheduler=scheduler)
    assert probe(core).graph_sizes == sizes


def test_a_client_without_calls_tells_why() -> None:
    async def call() -> None: ...

    assert probe_calls(SimpleNamespace()) == "SimpleNamespace has no engine_core"
    old = SimpleNamespace(engine_core=SimpleNamespace())
    assert probe_calls(old) == "SimpleNamespace has no call_utility_async"
    assert (
        probe_calls(SimpleNamespace(engine_core=SimpleNamespace(call_utility_async=call))) is None
    )
