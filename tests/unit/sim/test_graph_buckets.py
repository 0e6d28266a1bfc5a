"""CUDA-graph buckets: an engine's steps take as long as those of the next captured batch size."""

from __future__ import annotations

import pytest

from mileage.costmodel.catalogue import architecture, gpu
from mileage.costmodel.deployment import Deployment
from mileage.costmodel.step_table import StepTable
from mileage.sim.engine_config import EngineConfig
from mileage.sim.sequence import Sequence
from tests.support.engine_host import run_engine

_DEPLOYMENT = Deployment(model=architecture("llama-3.1-8b"), gpu=gpu("h100"))


def _itl_s(table: StepTable, requests: int) -> float:
    """Of so many requests that decode together, each with the same context."""
    config = EngineConfig(kv_blocks=4000, running_max=64, step_tokens_max=256)
    sequences = [Sequence(i, 1, 50) for i in range(requests)]
    run_engine(config, table, [(0.0, each) for each in sequences])
    return sequences[0].itl_mean_s


def test_padding_to_a_captured_size_shows_in_the_gaps() -> None:
    table = _DEPLOYMENT.step_table(64, 256, graph_sizes=(8, 64))
    exact = _DEPLOYMENT.step_table(64, 256, graph_sizes=range(1, 65))
    for requests in (8, 64):  # captured sizes themselves
        assert _itl_s(table, requests) == pytest.approx(_itl_s(exact, requests))
    for requests in (9, 33):
        padding_s = _itl_s(table, requests) - _itl_s(exact, requests)
        lines = zip(table.lines, exact.lines, strict=True)
        expected_s = sum(a.decode_s[requests] - b.decode_s[requests] for a, b in lines)
        assert padding_s == pytest.approx(expected_s, rel=1e-6)
        assert padding_s > 1e-5
    # A row that is only padding costs less than a request, whose context is read.
    assert _itl_s(table, 9) < _itl_s(table, 64)
