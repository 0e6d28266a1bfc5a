"""Whether an engine's steps are told to a ledger, and why not."""

from __future__ import annotations

import os
from typing import Any

from mileage.vllm_plugin import engine_hook
from mileage.vllm_plugin.step_tap import METERING_OBSERVER, StepTap, tap_settings, why_not_metered

__all__ = ["add_metering", "metering_state"]


def add_metering() -> None:
    """Have the steps of each engine told, where the environment asks for it."""
    if not isinstance(tap_settings(os.environ), str):
        engine_hook.register(METERING_OBSERVER, StepTap.of)


def metering_state(core: Any) -> bool | str:
    """True: this engine's steps are told; else why they are not, or not all of them."""
    settings = tap_settings(os.environ)
    if isinstance(settings, str):
        return settings
    hook = engine_hook.CoreHook.of(core)
    why_not = hook.why_not or why_not_metered(core.vllm_config)
    if why_not is not None:
        return why_not
    tap = hook.observer(METERING_OBSERVER)
    if not isinstance(tap, StepTap):
        reason = hook.failure(METERING_OBSERVER) or "see the engine's log"
        return f"what watches its steps has failed: {reason}"
    return tap.channel.error or True
