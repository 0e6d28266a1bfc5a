"""The general plugin: harmless without vLLM, and however often it is called."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from mileage.vllm_plugin import engine_hook
from mileage.vllm_plugin.general import GET_METHOD, SET_METHOD, add_control, register
from tests.support.scheduler_versions import core_of


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    for name in tuple(engine_hook._factories):
        engine_hook.unregister(name)


def engine_class() -> Any:
    """A class that runs an engine's steps."""

    class EngineCore:
        def __init__(self, core: Any) -> None:
            self.scheduler, self.vllm_config = core.scheduler, core.vllm_config

        def step(self) -> Any:
            return self.scheduler.update_from_output(self.scheduler.schedule(), None)

    return EngineCore


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is here")
def test_without_the_engine_that_it_knows_a_server_starts_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR, "vllm.mileage"):
        register()
        register()
    assert "cannot control this vLLM" in caplog.text


def test_a_factory_of_eviction_policies_that_fails_does_not_keep_the_server_from_starting(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class CachePolicyFactory:
        @staticmethod
        def register_cache_policy(*_: object) -> None:
            raise TypeError("other arguments")

    names = ["vllm", "v1", "kv_offload", "cpu", "policies", "factory"]
    for end in range(1, len(names) + 1):
        name = ".".join(names[:end])
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    core = ModuleType("vllm.v1.engine.core")
    vars(core)["EngineCore"] = engine_class()
    monkeypatch.setitem(sys.modules, "vllm.v1.engine", ModuleType("vllm.v1.engine"))
    monkeypatch.setitem(sys.modules, core.__name__, core)
    vars(sys.modules[".".join(names)])["CachePolicyFactory"] = CachePolicyFactory
    with caplog.at_level(logging.ERROR, "vllm.mileage"):
        register()
    assert [record.getMessage() for record in caplog.records] == [
        "mileage's eviction policies cannot be had in this vLLM"
    ]


def test_called_again_it_adds_nothing() -> None:
    engine_core = engine_class()
    for _ in range(3):
        assert add_control(engine_core) is None
    core = engine_core(core_of())
    for _ in range(2):
        core.step()
    assert getattr(core, GET_METHOD)()["steps_total"] == 2
    assert engine_hook.CoreHook.of(core).steps_total == 2


def test_an_engine_without_steps_is_controlled_when_asked_and_says_so() -> None:
    engine_core = type("EngineCore", (), {})
    assert "has no step" in str(add_control(engine_core))


def test_an_engine_whose_steps_cannot_be_seen_takes_no_control_that_nothing_would_end() -> None:
    engine_core = engine_class()
    add_control(engine_core)
    core = engine_core(core_of())
    # Its methods have other names: nothing can be wrapped.
    core.scheduler = SimpleNamespace(**vars(core.scheduler), has_requests=lambda: False)
    message = {"version": 1, "writer": "a", "base": [0, ""], "knobs": {"active_max": 1}}
    with pytest.raises(RuntimeError, match="has failed: AttributeError"):
        getattr(core, SET_METHOD)({**message, "lease_s": 1.0})
    assert core.scheduler.max_num_active_reqs == 64


def test_a_message_that_is_none_changes_nothing() -> None:
    engine_core = engine_class()
    add_control(engine_core)
    core = engine_core(core_of())
    with pytest.raises(Exception, match="version"):
        getattr(core, SET_METHOD)({"knobs": {}})
    assert getattr(core, GET_METHOD)()["version"] == 0
