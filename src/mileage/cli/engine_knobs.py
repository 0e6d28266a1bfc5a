"""Which engines' own limits the governor sets, and by what."""

from __future__ import annotations

from collections.abc import Iterable

from mileage.engines.remote import RemoteEngine
from mileage.engines.vllm_control import VllmControl
from mileage.gateway.knob_desk import Controlled

__all__ = ["controlled"]


def controlled(engines: Iterable[RemoteEngine]) -> dict[str, Controlled]:
    """Those with a control configured, by name."""
    return {
        engine.name: Controlled(
            VllmControl(engine.control),
            engine.control,
            engine.control.lease_s,
            engine.control.step_budget,
        )
        for engine in engines
        if engine.control is not None
    }
