"""A reference model of real weights: what formats cost, and that short cuts change nothing."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.vllm_server import converted_model

RUN_S = 600.0
ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def found(vllm_python: Path) -> Mapping[str, Any]:
    model = converted_model(vllm_python)
    ended = subprocess.run(
        [str(vllm_python), "-m", "tests.support.reference_model_run", str(model)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        timeout=RUN_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-4000:].decode(errors="replace")
    document: Mapping[str, Any] = json.loads(ended.stdout)
    return document


def test_it_captures_every_layer_s_heads(found: Mapping[str, Any]) -> None:
    assert found["layers"] == 30
    assert found["shapes"] == [[192, 9, 64], [192, 3, 64]]
    assert found["scale"] == 0.125


def test_fewer_bits_cost_more(found: Mapping[str, Any]) -> None:
    plain = found["plain"]

    assert plain["f16/f16"] < 1e-5
    assert plain["f16/f16"] < plain["q8_0/q8_0"] < 2e-3
    assert 10.0 * plain["q8_0/q8_0"] < plain["q4_0/q4_0"] < 1.0


def test_a_run_resumed_from_a_layer_is_the_whole_run(found: Mapping[str, Any]) -> None:
    assert found["whole"] > 1e-5
    assert found["resumed"] == pytest.approx(found["whole"], rel=1e-2)


def test_keys_need_the_bits_until_they_have_outliers(found: Mapping[str, Any]) -> None:
    """INT8 has finer steps, FP8 a wider range: which of them suits keys depends on the model."""
    plain, stressed = found["plain"], found["stressed"]

    assert plain["e4m3/int8-token"] > 1.5 * plain["int8-token/e4m3"]
    assert stressed["int8-token/e4m3"] > 1.5 * stressed["e4m3/int8-token"]


def test_outlier_channels_leave_the_model_what_it_is(found: Mapping[str, Any]) -> None:
    assert found["unchanged"] < 1e-5


def test_text_shorter_than_a_window_is_refused(found: Mapping[str, Any]) -> None:
    assert "at least one window of 96" in found["refused"]
