"""Host: what of the configuration anybody may see, and the addresses that it tells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from mileage.cli.config import Config
from mileage.cli.config_source import ConfigSource
from mileage.cli.host import Host
from mileage.gateway.admin.app import AdminApp
from tests.support.admin_plane import ASSETS
from tests.support.asgi import call

TOKEN = "TOPSECRET-admin-token"
HASH = "sha256:" + "5ec7e7" * 10 + "5ec7"
SECRETS = ("TOPSECRET", "5ec7e75ec7e7")
CONFIG: dict[str, Any] = {
    "admin": {"token": TOKEN},
    "tenants": {"team": {"key_hashes": [HASH]}},
    "engines": [
        {
            "kind": "vllm",
            "url": "http://TOPSECRET-user:TOPSECRET-password@10.0.0.1:8000/base?key=TOPSECRET-key",
            "metrics_url": "http://me:TOPSECRET-pass@10.0.0.1:9000/m?token=TOPSECRET-token#TOPSECRET",
            "api_key_env": "THE_KEY",
        },
        {"kind": "openai", "url": "http://10.0.0.2:8000"},
    ],
}


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("THE_KEY", "TOPSECRET-engine-key")
    return Host(ConfigSource(None, {}, {}), msgspec.convert(CONFIG, Config), None)


def test_the_public_configuration_has_no_secret_and_all_else(host: Host) -> None:
    public = host.config_public()
    text = msgspec.json.encode(public).decode()
    assert [secret for secret in SECRETS if secret in text] == []
    first, second = public["engines"]
    assert (first["url"], first["metrics_url"]) == (
        "http://10.0.0.1:8000/base",
        "http://10.0.0.1:9000/m",
    )
    assert (first["api_key_env"], second["metrics_url"]) == ("THE_KEY", None)
    assert public["tenants"] == {"team": {"keys": 1}}
    assert "token" not in public["admin"]


@pytest.mark.parametrize("path", ["status", "config", "replicas", "series", "session"])
def test_no_answer_of_the_control_api_has_a_secret(host: Host, path: str) -> None:
    app = AdminApp(host, host._config.admin, token=TOKEN, assets=ASSETS)
    answer = call(app, f"/api/v1/{path}", headers={"authorization": f"Bearer {TOKEN}"})
    assert answer.status == 200
    assert [secret for secret in SECRETS if secret in answer.body.decode()] == []
