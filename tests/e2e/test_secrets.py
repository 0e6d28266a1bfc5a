"""Secrets of the configuration show up nowhere: not in the admin plane, not in what is printed."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tests.support.engine import ScriptedEngine
from tests.support.gateway import Gateway, free_port, wait_until

HASH = "5ec7e7" * 10 + "5ec7"
SECRETS = ("TOPSECRET", "5ec7e75ec7e7")


def test_no_secret_is_told_or_logged(tmp_path: Path) -> None:
    with ScriptedEngine() as engine:
        address = engine.url.removeprefix("http://")
        with Gateway(
            tmp_path,
            "--log-level",
            "info",
            config=f"""
[tenants.team]
key_hashes = ["sha256:{HASH}"]
[[engines]]
kind = "vllm"
name = "a"
url = "http://user:TOPSECRET-url@{address}"
metrics_url = "http://user:TOPSECRET-metrics@{address}/gone?token=TOPSECRET-query"
health_interval_s = 0.1
scrape_interval_s = 0.1
[[engines]]
kind = "vllm"
name = "b"
url = "http://{address}"
api_key_env = "THE_ENGINE_KEY"
[[engines]]
kind = "vllm"
name = "dead"
url = "http://user:TOPSECRET-dead@127.0.0.1:{free_port()}"
""",
            environment={"THE_ENGINE_KEY": "TOPSECRET-engine-key"},
        ) as gateway:
            wait_until(lambda: gateway.replica("dead")["state"] == "down", "an engine is down")
            wait_until(lambda: gateway.replica("a")["observation_error"], "the scrape has failed")
            told = [
                msgspec.json.encode(gateway.admin(f"/api/v1/{path}")).decode()
                for path in ("status", "config", "replicas", "series")
            ]
            assert "THE_ENGINE_KEY" in told[1]
            told.append(msgspec.json.encode(gateway.listening).decode())
            token = Path(gateway.listening.admin_token_file or "").read_text().strip()
        told.append(gateway.log)
    secrets = (*SECRETS, token)
    assert [secret for secret in secrets for text in told if secret in text] == []
