"""Replays an engine's steps through the plugin's hook and tap alone: what each takes of CPU."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from mileage.core.request_name import request_name
from mileage.ledger.engine_step import EngineStep
from mileage.vllm_plugin import engine_hook
from mileage.vllm_plugin.step_tap import METERING_OBSERVER, StepTap, TapSettings

__all__ = ["TapCost", "tap_cost"]

_TAG = "01234567"
_IDLE_S = 3.0


class TapCost(NamedTuple):
    """CPU time, the writing thread's too."""

    us_per_step: float
    idle_ratio: float
    """Of one core, while nothing is asked of the engine."""


class _Scheduler:
    def __init__(self, outputs: Sequence[Any]) -> None:
        self._outputs = iter(outputs)

    def schedule(self) -> Any:
        return next(self._outputs)

    def update_from_output(self, output: Any, model_output: Any) -> None:
        """Nothing is to be done."""


class _Core:
    def __init__(self, outputs: Sequence[Any]) -> None:
        self.scheduler = _Scheduler(outputs)

    def step(self) -> None:
        self.scheduler.update_from_output(self.scheduler.schedule(), None)


def tap_cost(steps: Sequence[EngineStep], directory: Path, rounds: int = 5) -> TapCost:
    """What the hook with a tap takes for these steps, less what the loop takes without; the least
    of the rounds, as others can only add to it."""
    outputs = _outputs(steps)
    plain: list[int] = []
    tapped: list[int] = []
    for number in range(rounds):
        plain.append(_run(_Core(outputs), len(outputs)))
        tap = StepTap(TapSettings(directory / f"replay-{number}", "replayed"))

        class Hooked(_Core):
            """A class that is wrapped, as vLLM's is."""

        engine_hook.register(METERING_OBSERVER, partial(_given, tap))
        engine_hook.install(Hooked)
        tapped.append(_run(Hooked(outputs), len(outputs)))
        tap.channel.stop()
        engine_hook.unregister(METERING_OBSERVER)
        assert tap.steps_total == len(steps)
    return TapCost((min(tapped) - min(plain)) / len(steps) / 1e3, _idle_ratio(directory))


def _given(tap: StepTap, core: object) -> StepTap:
    return tap


def _run(core: _Core, steps: int) -> int:
    began_ns = time.process_time_ns()
    for _ in range(steps):
        core.step()
    return time.process_time_ns() - began_ns


def _idle_ratio(directory: Path) -> float:
    tap = StepTap(TapSettings(directory / "idle", "idle"))
    began_ns = time.process_time_ns()
    time.sleep(_IDLE_S)
    used_ns = time.process_time_ns() - began_ns
    tap.channel.stop()
    return used_ns / 1e9 / _IDLE_S


def _outputs(steps: Sequence[EngineStep]) -> list[Any]:
    """What the scheduler must have told: those with a prompt are new, the others go on."""
    known: set[int] = set()
    made = []
    for step in steps:
        new, names, contexts = [], [], []
        scheduled = {}
        for use in step.uses:
            name = f"chatcmpl-{request_name(abs(use.request_id), _TAG).decode()}-0a1b2c3d"
            scheduled[name] = use.prefill_tokens + use.decode_tokens
            if use.request_id in known:
                names.append(name)
                contexts.append(use.context_tokens)
                continue
            known.add(use.request_id)
            prompt = [0] * (use.context_tokens + use.prefill_tokens)
            new.append(
                SimpleNamespace(
                    req_id=name, prompt_token_ids=prompt, num_computed_tokens=use.context_tokens
                )
            )
        cached = SimpleNamespace(
            req_ids=names,
            num_computed_tokens=contexts,
            num_output_tokens=[1] * len(names),
            resumed_req_ids=(),
        )
        made.append(
            SimpleNamespace(
                scheduled_new_reqs=new,
                scheduled_cached_reqs=cached,
                num_scheduled_tokens=scheduled,
                finished_req_ids=(),
            )
        )
    return made
