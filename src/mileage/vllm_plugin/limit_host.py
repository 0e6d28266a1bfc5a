"""LimitHost: a limits policy inside the engine, told of requests by the engine's own steps."""

from __future__ import annotations

from typing import Any

from mileage.control.config import ControlConfig, GovernorConfig
from mileage.control.first_limit import first_limit
from mileage.core.replica import ReplicaView
from mileage.core.slo import SloConfig
from mileage.policy.limits.choose import make_limit
from mileage.policy.limits.limit import LimitSignals, RequestSample
from mileage.policy.limits.model import ModelConfig
from mileage.vllm_plugin.policy_settings import PolicySettings

__all__ = ["LimitHost"]


class LimitHost:
    """The same policy object as in the gateway; it decides about every `governor.period_s`.

    Where the budget `model` runs beside it, that one keeps the ITL target, and the limit `model`
    goes by memory alone.
    """

    def __init__(self, settings: PolicySettings, running_max: int) -> None:
        assert settings.limits is not None
        inside = settings.budget == "model"
        self._config = GovernorConfig(
            policy=settings.limits, limit_max=running_max, model=ModelConfig(engine_policies=inside)
        )
        self._settings = settings
        slo = SloConfig(ttft_s=settings.ttft_target_s, itl_s=settings.itl_target_s)
        limit = first_limit(ControlConfig(governor=self._config, slo=slo))
        self._policy = make_limit(self._config, limit=limit)
        self._due_s = float("-inf")
        self._peak = 0
        self._arrivals = 0
        self.limit = limit
        """Requests that the engine may run at once."""
        self.reason = "as at the start"

    def arrived(self, requests: int) -> None:
        """So many requests came since the last step."""
        self._arrivals += requests

    def due(self, now_s: float, in_flight: int) -> bool:
        """Whether `update` is to be called now; called at every step, with what runs."""
        self._peak = max(self._peak, in_flight)
        return now_s >= self._due_s

    def update(
        self,
        scheduler: Any,
        samples: tuple[RequestSample, ...],
        now_s: float,
        running_max: int,
    ) -> int:
        """Decide anew, at most `running_max`; gives the limit."""
        self._due_s = now_s + self._config.period_s
        running, waiting = len(scheduler.running), len(scheduler.waiting)
        view = ReplicaView(
            replica="engine",
            observed_s=now_s,
            running=running,
            waiting=waiting,
            running_max=running_max,
            kv_cache_usage_ratio=_kv_usage(scheduler),
        )
        signals = LimitSignals(
            view=view,
            running_max=running_max,
            in_flight=running,
            in_flight_peak=self._peak,
            waiting=waiting,
            arrivals=float(self._arrivals),
            samples=samples,
            ttft_target_s=self._settings.ttft_target_s,
            itl_target_s=self._settings.itl_target_s,
        )
        decision = self._policy.update(signals, now_s)
        self._peak, self._arrivals = running, 0
        self.limit = min(max(1, decision.limit), running_max)
        self.reason = decision.reason
        return self.limit


def _kv_usage(scheduler: Any) -> float | None:
    """The part of the KV cache that is in use; None where this version does not tell it so."""
    manager = getattr(scheduler, "kv_cache_manager", None)
    usage = getattr(manager, "usage", None)
    return float(usage) if isinstance(usage, int | float) else None
