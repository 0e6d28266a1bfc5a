"""Keys that are made and revoked beside a running gateway."""

from __future__ import annotations

import json
from pathlib import Path

import httpx

from tests.support.engine import ScriptedEngine
from tests.support.gateway import Gateway, run_mileage, wait_until
from tests.support.local_http import LOCAL


def test_a_new_key_works_and_a_revoked_one_does_not_without_a_restart(tmp_path: Path) -> None:
    def keys(*arguments: str) -> dict[str, str]:
        file = ("--config", str(tmp_path / "mileage.toml"), "--json")
        done = run_mileage("keys", *arguments, *file, state=tmp_path / "state")
        assert done.returncode == 0, done.stderr
        made: dict[str, str] = json.loads(done.stdout)
        return made

    def status(key: str) -> int:
        headers = {"authorization": f"Bearer {key}"}
        return httpx.get(f"{gateway.url}/models", headers=headers, **LOCAL).status_code

    (tmp_path / "mileage.toml").write_text("# nothing yet\n")
    first = keys("create", "team-a")["key"]
    text = (tmp_path / "mileage.toml").read_text()
    with (
        ScriptedEngine() as engine,
        Gateway(tmp_path, engines=[engine.url], config=text) as gateway,
    ):
        assert status(first) == 200
        second = keys("create", "team-b")
        wait_until(lambda: status(second["key"]) == 200, "the new key is known")
        assert status(first) == 200
        keys("revoke", second["key_hash"][:20])
        wait_until(lambda: status(second["key"]) == 401, "the key is revoked")
        assert status(first) == 200
