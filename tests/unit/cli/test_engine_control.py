"""`mileage engine control`: what it asks an engine, what it shows, and its exit codes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import mileage.cli.engine_control as control
import mileage.cli.engine_control_call as calls
from mileage.cli.whole_command import app
from mileage.core.errors import ConfigError, EngineError, MileageError
from mileage.vllm_plugin import engine_hook
from mileage.vllm_plugin.engine_control import EngineControl
from mileage.wire.fetch import FetchResponse
from tests.support.control_site import SITE_TOKEN, ControlSite, engine

URL = "http://127.0.0.1:8000"


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[ControlSite]:
    """A server that the command asks, with its token in the environment."""
    monkeypatch.setenv("MILEAGE_CONTROL_TOKEN", SITE_TOKEN)
    made = ControlSite(engine())

    async def fetch(
        url: str, *, method: str, headers: Sequence[tuple[str, str]], body: bytes, timeout_s: float
    ) -> FetchResponse:
        path = url.removeprefix(URL)
        status, document, _ = await made.ask(method, path, headers=dict(headers), body=body)
        return FetchResponse(status, (), json.dumps(document).encode())

    monkeypatch.setattr(calls, "fetch", fetch)
    yield made
    for name in ("control", "policy"):
        engine_hook.unregister(name)


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["engine", "control", URL, *words])


def test_it_shows_the_limits_and_changes_nothing(site: ControlSite) -> None:
    result = run()
    assert result.exit_code == 0, result.output
    assert "none: the values stay" in result.stdout
    assert "active_max" in result.stdout
    assert site.client.calls == ["mileage_get"]


def test_what_is_named_is_set_and_the_rest_stays(site: ControlSite) -> None:
    assert run("--active-max", "4", "--waiting-max", "0").exit_code == 0
    result = run("--step-tokens-max", "96", "--lease-s", "60", "--json")
    found = json.loads(result.stdout)
    assert found["requested"] == {
        "active_max": 4,
        "step_tokens_max": 96,
        "long_prefill_tokens_max": None,
        "waiting_max": 0,
    }
    assert (found["lease_s"], found["version"]) == (60, 2)
    found = json.loads(run("--active-max", "start", "--json").stdout)
    assert (found["requested"]["active_max"], found["lease_s"]) == (None, None)


def test_what_was_clamped_is_shown(site: ControlSite) -> None:
    result = run("--active-max", "100000", "--lease-s", "60")
    assert result.exit_code == 0
    assert "out of 1..64" in result.stdout
    assert "left of 60 s" in result.stdout


def test_a_control_that_failed_inside_the_engine_is_shown(site: ControlSite) -> None:
    observer = engine_hook.CoreHook.of(site.client.engines[0]).observer("control")
    assert isinstance(observer, EngineControl)
    observer.give_up("KeyError at x.py:1 (y)")
    result = run()
    assert result.exit_code == 0
    assert "failed" in result.stdout
    assert "KeyError at x.py:1 (y)" in result.stdout
    assert "its start values are back" in result.stdout


def test_values_that_are_not_in_force_in_time_are_a_failure(site: ControlSite) -> None:
    site.client.engines[0].scheduler.running.append("in a long step")
    result = run("--active-max", "4", "--wait-s", "0")
    assert (result.exit_code, "not in force yet" in result.stderr) == (1, True)


@pytest.mark.parametrize(
    ("words", "key"),
    [
        pytest.param(("--active-max", "few"), "--active-max", id="no number"),
        pytest.param(("--lease-s", "0"), "--lease-s", id="no lease"),
        pytest.param(("--wait-s", "61", "--active-max", "1"), "--wait-s", id="a long wait"),
        pytest.param(("--policy", "model"), "--policy", id="no object"),
        pytest.param(("--policy", '{"budget": "none such"}'), "policy.budget", id="no such policy"),
        pytest.param(("--token-file", "no-such-file"), "--token-file", id="no token file"),
    ],
)
def test_a_bad_value_is_named(site: ControlSite, words: tuple[str, ...], key: str) -> None:
    result = run(*words)
    assert isinstance(result.exception, ConfigError)
    assert result.exception.key == key


def test_without_a_token_it_says_which(site: ControlSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MILEAGE_CONTROL_TOKEN")
    result = run()
    assert isinstance(result.exception, ConfigError)
    assert result.exception.key == "MILEAGE_CONTROL_TOKEN"


def test_the_token_may_be_in_a_file(
    site: ControlSite, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("MILEAGE_CONTROL_TOKEN")
    file = tmp_path / "token"
    file.write_text(f"{SITE_TOKEN}\n")
    assert run("--token-file", str(file)).exit_code == 0
    monkeypatch.setenv("MILEAGE_CONTROL_TOKEN_FILE", str(file))
    assert run().exit_code == 0


def test_another_answer_is_an_error_that_says_what_to_look_at(
    site: ControlSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILEAGE_CONTROL_TOKEN", "another-token-of-sixteen")
    result = run()
    assert isinstance(result.exception, MileageError)
    assert "401" in str(result.exception)

    async def fetch(url: str, **options: Any) -> FetchResponse:
        return FetchResponse(404, (), b'{"detail": "Not Found"}')

    monkeypatch.setattr(calls, "fetch", fetch)
    result = run()
    assert "VLLM_PLUGINS=mileage" in str(result.exception)


def held(
    monkeypatch: pytest.MonkeyPatch, answers: list[Exception | None], lease_s: float
) -> tuple[Exception, int]:
    """Hold a lease of an engine that answers so, its last answer again and again."""
    asked = 0

    async def ask_control(url: str, token: str, body: Any = None) -> None:
        nonlocal asked
        answer = answers[min(asked, len(answers) - 1)]
        asked += 1
        if answer is not None:
            raise answer

    monkeypatch.setattr(control, "ask_control", ask_control)
    with pytest.raises((MileageError, KeyboardInterrupt)) as raised:
        asyncio.run(control._renew(URL, SITE_TOKEN, lease_s))
    assert isinstance(raised.value, Exception)
    return raised.value, asked


def test_holding_goes_on_after_an_error_and_ends_when_the_lease_has_run_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = EngineError("e", "cannot be reached")
    found, asked = held(monkeypatch, [error, None, error], 0.3)
    assert asked > 3, "it was renewed once, and then tried again and again"
    assert "the lease of 0.3 s has run out and could not be renewed" in str(found)
    assert "cannot be reached" in str(found)
    assert capsys.readouterr().err.count("trying on") == 2


def test_holding_ends_at_once_for_what_the_engine_will_never_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, asked = held(monkeypatch, [ConfigError("lease_s", 0.3, "another")], 0.3)
    assert (type(found), asked) == (ConfigError, 1)


def test_holding_renews_the_lease(site: ControlSite) -> None:
    async def main() -> None:
        found = await calls.ask_control(URL, SITE_TOKEN, {"lease_s": 5.0})
        assert (found.lease_s, found.version) == (5.0, 1)
        found = await calls.ask_control(URL, SITE_TOKEN, {"lease_s": 5.0})
        assert found.version == 2

    asyncio.run(main())
