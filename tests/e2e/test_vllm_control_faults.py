"""A real vLLM whose control and policies break inside its engine serves on as it was started."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.vllm_control import Control, EngineLoad
from tests.support.vllm_server import PLUGIN, VllmServer, tiny_model

pytestmark = pytest.mark.heavy

SLOTS, PROMPT = 8, "what somebody asked"
ARGUMENTS = (
    *("--load-format", "dummy", "--max-model-len", "1024", "--no-enable-prefix-caching"),
    *("--max-num-seqs", str(SLOTS), "--max-num-batched-tokens", "512"),
)
BREAKS = f"""
import os
from mileage.vllm_plugin import policy_host
from mileage.vllm_plugin.engine_control import EngineControl

def breaks(where, name, file):
    call = getattr(where, name)
    def broken(*arguments):
        if os.path.exists(file):
            raise RuntimeError({PROMPT!r})
        return call(*arguments)
    setattr(where, name, broken)

breaks(EngineControl, "before_step", CONTROL)
breaks(policy_host, "read_running", POLICY)
"""
"""Python runs it at the start of each process of vLLM: a fault from when the file is there."""


class Breakable(NamedTuple):
    """A server, and the files that break its control and its policies."""

    vllm: VllmServer
    control: Path
    policy: Path


@pytest.fixture(scope="module")
def breakable(tmp_path_factory: pytest.TempPathFactory, vllm_python: Path) -> Iterator[Breakable]:
    directory = tmp_path_factory.mktemp("vllm")
    control, policy, site = (directory / name for name in ("control", "policy", "site"))
    site.mkdir()
    names = f"CONTROL, POLICY = {str(control)!r}, {str(policy)!r}\n"
    (site / "sitecustomize.py").write_text(names + BREAKS)
    environment = {**PLUGIN, "PYTHONPATH": str(site)}
    model = tiny_model(vllm_python, directory)
    with VllmServer(
        vllm_python, model, directory, *ARGUMENTS, name="tiny", environment=environment
    ) as vllm:
        yield Breakable(vllm, control, policy)


def test_it_serves_on_with_its_start_values_and_says_what_failed(breakable: Breakable) -> None:
    vllm, control = breakable.vllm, Control(breakable.vllm)
    policy = {"budget": "model", "itl_target_s": 5.0}
    control.post({"policy": policy, "lease_s": None}).raise_for_status()
    control.set(active_max=2, step_tokens_max=64, waiting_max=100)
    with EngineLoad(vllm, SLOTS, prompt_tokens=30, output_tokens=40) as load:
        control.until("two run", lambda found: found["ranks"][0]["running"] == 2)
        breakable.policy.touch()
        found = control.until("no policy", lambda found: "failed" in found["policy"])
        assert found["policy"]["failed"].startswith("budget=model: RuntimeError at sitecustomize")
        assert (found["failed"], found["applied"]["active_max"]) == (None, 2)
        breakable.control.touch()
        found = control.until("no control", lambda found: found["failed"] is not None)
        assert found["failed"].startswith("RuntimeError at sitecustomize.py:")
        assert (found["applied"], found["reverted"]) == (found["start"], True)
        control.until("all run", lambda found: found["ranks"][0]["running"] > 2)
    assert load.failures == []
    answer = control.post({"knobs": {"active_max": 1}, "wait_s": 60}).raise_for_status().json()
    assert answer["applied_version"] == answer["version"]
    assert answer["clamped"]["active_max"]["applied"] is None
    assert found["failed"] in answer["clamped"]["active_max"]["reason"]
    assert control.post({"policy": policy}).status_code == 400
    assert PROMPT not in str(control.get()) + vllm.log
    assert vllm.log.count("observer control failed") == 1
    assert vllm.log.count("policy budget=model failed") == 1
    control.client.close()
