"""Entry point `mileage` of vllm.general_plugins: makes each engine ready to be controlled.

vLLM calls it in every process that it starts, some of them more than once: it only adds to classes
what is not there, and never raises: a server serves with or without it.
"""

from __future__ import annotations

import logging
import secrets
import sys
import time
from typing import Any, Final

import msgspec

from mileage.core.errors import ConfigError
from mileage.vllm_plugin import engine_hook
from mileage.vllm_plugin.engine_control import CONTROL_OBSERVER, EngineControl, SetMessage
from mileage.vllm_plugin.kv_offload_policy import add_policies
from mileage.vllm_plugin.metering import add_metering, metering_state
from mileage.vllm_plugin.policy_observer import POLICY_OBSERVER, PolicyObserver

__all__ = ["GET_METHOD", "SET_METHOD", "add_control", "register"]

GET_METHOD: Final = "mileage_get"
SET_METHOD: Final = "mileage_set"
"""Methods of EngineCore: an API server calls them by name over vLLM's own sockets."""

_log = logging.getLogger("vllm.mileage")
_BOOT_BYTES: Final = 4
_INSPECTOR: Final = "vllm.model_executor.models.registry"
"""A short-lived process that looks at a model's class: it runs no engine."""


def register() -> None:
    """Called by vLLM."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    if getattr(main, "name", None) == _INSPECTOR:
        return
    try:
        from vllm.v1.engine.core import EngineCore

        why_not = add_control(EngineCore)
    except Exception:
        _log.exception("mileage cannot control this vLLM")
        return
    if why_not is not None:
        _log.warning("mileage cannot control this vLLM: %s", why_not)
    try:
        from vllm.v1.kv_offload.cpu.policies.factory import CachePolicyFactory
    except ImportError:
        return  # an older vLLM: it takes no policies of others
    try:
        add_policies(CachePolicyFactory)
    except Exception:
        _log.exception("mileage's eviction policies cannot be had in this vLLM")


def add_control(engine_core: type) -> str | None:
    """Add Mileage's methods and observers to the EngineCore class, once; why not, or None."""
    engine_hook.register(CONTROL_OBSERVER, _make_control)
    # After the control: what it sets in a step bounds what the policies choose for it.
    engine_hook.register(POLICY_OBSERVER, PolicyObserver)
    add_metering()
    why_not = engine_hook.install(engine_core)
    setattr(engine_core, GET_METHOD, _get)
    setattr(engine_core, SET_METHOD, _set)
    return why_not


def _make_control(core: Any) -> EngineControl:
    config = getattr(core.vllm_config, "parallel_config", None)
    rank: int = getattr(core, "engine_index", getattr(config, "data_parallel_rank", 0))
    control = EngineControl(core, rank=rank, boot=secrets.token_hex(_BOOT_BYTES))
    control.step_policy = lambda: _policy_of(core)
    return control


def _policy_of(core: Any) -> PolicyObserver | None:
    """What decides step by step; None: it could not be made."""
    policy = engine_hook.CoreHook.of(core).observer(POLICY_OBSERVER)
    return policy if isinstance(policy, PolicyObserver) else None


def _control_of(core: Any) -> EngineControl:
    hook = engine_hook.CoreHook.of(core)
    # One that has failed still says so, for all the ranks beside it.
    control = hook.observer(CONTROL_OBSERVER) or hook.failed(CONTROL_OBSERVER)
    # One that is told of no step would hold what it sets for ever: no lease runs out by itself.
    if hook.why_not is not None or not isinstance(control, EngineControl):
        why_not = hook.why_not or hook.failure(CONTROL_OBSERVER) or "it was not made"
        raise RuntimeError(f"mileage's control of this engine has failed: {why_not}")
    return control


def _get(core: Any) -> Any:
    """State of the engine, as plain values."""
    return _state(core, _control_of(core), time.monotonic())


def _state(core: Any, control: EngineControl, now_s: float) -> Any:
    state = msgspec.to_builtins(control.state(now_s))
    state["capabilities"]["metering"] = metering_state(core)
    return state


def _set(core: Any, message: Any) -> Any:
    """Take a request. `accepted` is False where a later one was there, `refused` says why not."""
    control, now_s = _control_of(core), time.monotonic()
    refused = None
    try:
        accepted = control.set(msgspec.convert(message, SetMessage), now_s)
    except ConfigError as error:
        accepted, refused = False, [error.key, repr(error.value), error.expected]
    state = _state(core, control, now_s)
    return {"accepted": accepted, "refused": refused, "state": state}
