"""`mileage doctor --fix`: a real gateway tries at once what eases a cause, after asking."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.support.engine import ScriptedEngine
from tests.support.gateway import run_mileage
from tests.support.reload_site import ReloadSite

PREEMPTED = {
    "engine": {"name": "vllm"},
    "signals": {
        "preemptions_per_s": 0.5,
        "kv_cache_usage_ratio": 0.99,
        "requests_running": 20,
        "requests_waiting": 4,
    },
}


def fixed(site: ReloadSite, directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    facts = directory / "facts.json"
    facts.write_text(json.dumps(PREEMPTED))
    listening = site.gateway.listening
    return run_mileage(
        *("doctor", "--facts", str(facts), "--fix", *options),
        *("--admin-url", str(listening.admin_url)),
        *("--admin-token-file", str(listening.admin_token_file)),
        state=site.gateway.state,
    )


def test_what_is_hot_is_tried_where_it_is_allowed_and_tells_how_to_prove_it(tmp_path: Path) -> None:
    with ScriptedEngine() as engine:
        site = ReloadSite(tmp_path, engine)
        with site.gateway:
            done = fixed(site, tmp_path, "--yes", "--json")
            status = site.status()
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["findings"][0]["cause"] == "kv_preemption"
    assert set(status["trial"]) == {"governor.mode", "governor.policy"}
    assert "--set-b governor.policy=tail_memory" in done.stderr


def test_without_an_answer_nothing_is_changed(tmp_path: Path) -> None:
    with ScriptedEngine() as engine:
        site = ReloadSite(tmp_path, engine)
        with site.gateway:
            done = fixed(site, tmp_path)  # there is nobody to answer
            status = site.status()
    assert done.returncode == 1
    assert status["trial"] == []
    assert "Traceback" not in done.stderr
