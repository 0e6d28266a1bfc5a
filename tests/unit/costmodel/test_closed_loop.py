"""The steady state of closed loops, against sums that can be done by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from mileage.costmodel.catalogue import architecture, gpu
from mileage.costmodel.closed_loop import ClosedLoop, Latencies, closed_loop
from mileage.costmodel.deployment import Deployment
from mileage.costmodel.efficiency import Efficiency
from mileage.costmodel.rates import rates
from mileage.costmodel.sizes import sizes

ONE = Deployment(model=architecture("llama-3.1-8b"), gpu=gpu("h100"), efficiency=Efficiency())


def loop(**changes: float) -> Latencies:
    values = {
        "requests": 16.0,
        "prompt_tokens": 1024.0,
        "output_tokens": 256.0,
        "running_max": 256.0,
        "step_tokens_max": 8192.0,
        "same_length": 0.0,
        **changes,
    }
    arrays = {name: np.array([value]) for name, value in values.items()}
    return closed_loop(sizes(ONE), rates(ONE, Efficiency()), ClosedLoop(**arrays))


def step_s(decoding: int, context: float, prefill: int = 0, pairs: float = 0.0) -> float:
    table = ONE.step_table(256, 8192, graph_sizes=range(1, 257))
    return table.step_s(decoding, round(decoding * context), prefill, pairs)


def test_one_request_alone_decodes_at_the_pace_of_its_steps() -> None:
    found = loop(requests=1.0)
    assert found.tpot_s[0] == pytest.approx(step_s(1, 1024 + 128), rel=1e-6)
    prompt_s = step_s(1, 1152, 1024, 1024 * 1025 / 2)
    assert found.ttft_s[0] == pytest.approx(Efficiency().ttft_s + prompt_s, rel=1e-3)


def test_every_other_request_s_prompt_is_waited_for_once() -> None:
    """TTFT + (O - 1) TPOT is what the steps take, and one prompt of each of the others."""
    for same_length in (0.0, 1.0):
        found = loop(same_length=same_length, output_tokens=512.0)
        life_s = found.ttft_s[0] + 511 * found.tpot_s[0]
        decoding = round(16 * 511 * found.tpot_s[0] / life_s)
        decode_s = step_s(decoding, 1024 + 256)
        mixed_s = step_s(decoding, 1024 + 256, 1024, 1024 * 1025 / 2)
        alone_s = Efficiency().ttft_s + decode_s / 2 + mixed_s
        expected_s = alone_s + 511 * decode_s + 15 * (mixed_s - decode_s)
        assert life_s == pytest.approx(expected_s, rel=0.02)


def test_requests_of_one_length_wait_for_those_of_their_step() -> None:
    apart, together = loop(same_length=0.0), loop(same_length=1.0)
    assert together.ttft_s[0] > apart.ttft_s[0]
    assert together.tpot_s[0] < apart.tpot_s[0]


def test_more_in_flight_is_slower_for_each() -> None:
    many = [loop(requests=float(n)) for n in (1, 4, 16, 64, 256)]
    for few, more in itertools.pairwise(many):
        assert few.tpot_s[0] < more.tpot_s[0]
        assert few.ttft_s[0] < more.ttft_s[0]


def test_no_token_waits_longer_than_the_longest_step() -> None:
    found = loop(requests=256.0, prompt_tokens=4000.0, output_tokens=8.0)
    longest_s = step_s(256, 4004, 8192, 8192 * 4000.0)
    assert found.tpot_s[0] <= longest_s
    assert found.prefill_share_ratio[0] > 0.5


def test_what_the_engine_does_not_run_at_once_does_not_slow_steps_down() -> None:
    assert loop(requests=512.0).tpot_s[0] == pytest.approx(loop(requests=256.0).tpot_s[0])
