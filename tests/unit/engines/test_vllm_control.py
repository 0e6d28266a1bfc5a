"""How an engine's control is asked: its token, and every answer as a value."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mileage.cli.config import Config
from mileage.cli.public_config import public_config
from mileage.core.errors import ConfigError
from mileage.engines.capabilities import CAPABILITIES, controllable
from mileage.engines.config import EngineConfig
from mileage.engines.control_config import EngineControlConfig
from mileage.engines.kinds import KINDS
from mileage.engines.remote import resolve
from mileage.policy.control_fault import ControlFault
from mileage.policy.engine_knobs import ControlDocument
from tests.support.control_site import SITE_TOKEN
from tests.support.knob_site import KnobSite, knob_site


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[KnobSite]:
    with knob_site(monkeypatch) as found:
        yield found


def ask(control: Any, body: dict[str, Any] | None = None) -> ControlDocument | ControlFault:
    found: ControlDocument | ControlFault = asyncio.run(control.ask(body, 1.0))
    return found


def test_a_file_is_read_again_after_a_401(site: KnobSite, tmp_path: Path) -> None:
    file = tmp_path / "token"
    control = site.control(token=None, token_file=str(file))
    missing = ask(control)
    assert isinstance(missing, ControlFault)
    assert (missing.kind, str(file) in missing.message) == ("wrong_token", True)
    file.write_text("another-token-of-sixteen\n")
    refused = ask(control)
    assert isinstance(refused, ControlFault)
    assert refused.kind == "wrong_token"
    file.write_text(SITE_TOKEN)
    assert isinstance(ask(control), ControlDocument)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        pytest.param({"knobs": {"active_max": "x"}}, "refused", id="what it does not know"),
        pytest.param({"knobs": {"none": 1}}, "refused", id="a knob that is none"),
    ],
)
def test_a_refusal_says_why(site: KnobSite, body: dict[str, Any], kind: str) -> None:
    fault = ask(site.control(), body)
    assert isinstance(fault, ControlFault)
    assert (fault.kind, "knobs" in fault.message) == (kind, True)


def control(**keys: Any) -> EngineControlConfig:
    return EngineControlConfig(**{"token_env": "TOKEN", **keys})


@pytest.mark.parametrize(
    ("engine", "environ", "key"),
    [
        pytest.param(
            {"kind": "sglang", "control": control()},
            {"TOKEN": "x"},
            "engines.control",
            id="a kind that cannot be set",
        ),
        pytest.param(
            {"kind": "vllm", "control": control()},
            {},
            "engines.control.token_env",
            id="no such variable",
        ),
    ],
)
def test_what_cannot_be_asked_is_an_error_at_the_start(
    engine: dict[str, Any], environ: dict[str, str], key: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        resolve(EngineConfig(url="http://e:1", **engine), environ)
    assert raised.value.key == key


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        pytest.param({"token_env": None}, "engines.control.token_env", id="no token"),
        pytest.param({"token_file": "f"}, "engines.control.token_env", id="two tokens"),
        pytest.param({"lease_s": 0.5}, "engines.control.lease_s", id="a lease too short"),
    ],
)
def test_a_bad_section_is_named(keys: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as raised:
        control(**keys)
    assert raised.value.key == key


def test_the_token_is_read_where_it_is_and_shown_nowhere() -> None:
    engine = EngineConfig(kind="vllm", url="http://e:1", control=control(lease_s=4.0))
    found = resolve(engine, {"TOKEN": SITE_TOKEN})
    assert found.control is not None
    assert (found.control.token, found.control.lease_s) == (SITE_TOKEN, 4.0)
    (shown,) = public_config(Config(engines=(engine,)))["engines"]
    assert shown["control"] == {"enabled": True, "lease_s": 4.0, "step_budget": False}
    off = EngineConfig(kind="vllm", url="http://e:1", control=control(enabled=False))
    assert resolve(off, {}).control is None


def test_the_table_has_every_kind_and_only_what_can_end_by_itself_is_set() -> None:
    assert set(KINDS) <= set(CAPABILITIES)
    assert controllable() == ("vllm",)
    for each in CAPABILITIES.values():
        assert each.sources
        assert all(knob.live or knob.start for knob in each.knobs)
