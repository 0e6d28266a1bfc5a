"""Entry point `mileage` of vllm.stat_logger_plugins: hears of each request that has ended.

vLLM makes one logger for each engine of an API server, and calls it in the server's event loop. A
logger's exception would end the server, so none leaves this one.
"""

from __future__ import annotations

import logging
import os
import time
from typing import Any

from mileage.vllm_plugin.request_tap import RequestTap
from mileage.vllm_plugin.step_tap import TapSettings, tap_settings

try:
    from vllm.v1.metrics.loggers import StatLoggerBase as _Base
except ImportError:  # not inside of vLLM, or inside of one without loggers of others
    _Base = object

__all__ = ["RequestLogger", "request_tap"]

_log = logging.getLogger("vllm.mileage")
_taps: dict[TapSettings, RequestTap] = {}
"""One for all engines of the process: they are one replica."""


def request_tap(settings: TapSettings) -> RequestTap:
    """The process's own, made where it is not there yet."""
    tap = _taps.get(settings)
    if tap is None:
        tap = _taps[settings] = RequestTap(settings)
        _log.info("mileage tells requests of %s in %s", settings.replica, settings.directory)
    return tap


class RequestLogger(_Base):  # type: ignore[misc]
    """A StatLoggerBase that tells of ended requests, and of nothing where none is asked for."""

    def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
        self._tap: RequestTap | None = None
        try:
            settings = tap_settings(os.environ)
            if not isinstance(settings, str):
                self._tap = request_tap(settings)
        except Exception:
            _log.exception("mileage cannot tell of requests")

    def record(
        self,
        scheduler_stats: Any,
        iteration_stats: Any,
        mm_cache_stats: Any = None,
        engine_idx: int = 0,
    ) -> None:
        """Called after each batch of outputs; most end no request."""
        if self._tap is None:
            return
        try:
            if ended := getattr(iteration_stats, "finished_requests", None):
                self._tap.ended(ended, time.time_ns())
        except Exception:
            self._tap = None
            _log.exception("mileage stops telling of requests: the server goes on")

    def log(self) -> None:
        """Nothing is printed."""

    def log_engine_initialized(self) -> None:
        """Nothing is printed."""

    def record_sleep_state(self, is_awake: int, level: int) -> None:
        """What sleeps ends no request."""
