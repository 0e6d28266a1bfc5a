"""PolicyObserver: the policies of one engine, at its steps as `engine_hook` sees them."""

from __future__ import annotations

import logging
import os
import time
from typing import Any, Final

from mileage.core.errors import ConfigError
from mileage.policy.engine_knobs import EngineKnobs
from mileage.vllm_plugin.capability import probe
from mileage.vllm_plugin.failure import log_failure
from mileage.vllm_plugin.policy_host import PolicyHost
from mileage.vllm_plugin.policy_settings import (
    PolicySettings,
    decode_policy,
    policy_from_environment,
)

__all__ = ["POLICY_OBSERVER", "PolicyObserver"]

POLICY_OBSERVER: Final = "policy"
"""Its name in the hook. It comes after what sets knobs, which bound it."""

_log = logging.getLogger("vllm.mileage")


class PolicyObserver:
    """Reads the clock for `PolicyHost`, which knows none, and holds what the engine began with.

    Nothing that a policy raises leaves it: the policies are switched off, the log says so once, and
    the document until others are asked for. The same ones would fail again: whoever renews them
    does not begin them anew, null and then the same does.
    """

    def __init__(self, core: Any) -> None:
        self._host = PolicyHost(core.scheduler, probe(core))
        self._start: PolicySettings | None = None
        try:
            self._start = policy_from_environment(os.environ)
            self._begin(self._start)
        except ConfigError as error:
            self._start = None
            _log.error("mileage: no policy inside this engine: %s", error)
        self._ended_ns = 0
        """When the last step ended; 0: the engine had nothing more to do then."""

    def ask(self, document: dict[str, Any] | None) -> None:
        """Begin what the document asks for, or end it where it is None. Raises ConfigError.

        The same settings again leave what was learned.
        """
        self._begin(decode_policy(document))

    def lapse(self) -> None:
        """Whoever asked is gone: what the engine began with decides again."""
        self._begin(self._start)

    def _begin(self, settings: PolicySettings | None) -> None:
        host = self._host
        if host.failed is None and settings == host.settings:
            return
        if settings is not None and settings == host.failed:
            return
        try:
            host.configure(settings)
        except ConfigError:
            raise
        except Exception as error:
            host.fail(error, settings)
            self._tell(error)

    def _tell(self, error: Exception) -> None:
        who, _, _ = str((self._host.document() or {}).get("failed")).partition(":")
        log_failure(_log, f"policy {who} failed, the engine goes on without it", error)

    def bound_by(self, knobs: EngineKnobs) -> None:
        """What was set by hand: policies stay below it."""
        self._host.bound_by(knobs)

    def document(self) -> dict[str, Any] | None:
        """What decides, and what it has decided last, or what has failed; None: nothing does."""
        return self._host.document()

    def before_step(self, core: Any, now_s: float) -> None:
        """Decide what the step may do."""
        if self._host.settings is None:
            return
        try:
            self._host.begin(now_s, now_s - time.time())
        except Exception as error:
            self._tell(error)

    def after_step(
        self,
        core: Any,
        scheduler_output: Any,
        model_output: Any,
        started_ns: int,
        duration_ns: int,
        cpu_ns: int,
    ) -> None:
        """Tell the policies what the step took."""
        if self._host.settings is None:
            self._ended_ns = 0
            return
        # Those that decode wait for what the engine does between two steps, too.
        between_ns = max(0, started_ns - self._ended_ns) if self._ended_ns else 0
        took_s = (duration_ns + between_ns) / 1e9
        ended_s = time.monotonic()
        try:
            self._host.ended(scheduler_output, ended_s - duration_ns / 1e9, ended_s, took_s)
        except Exception as error:
            self._tell(error)
        scheduler = core.scheduler
        busy = bool(scheduler.running) or bool(scheduler.waiting)
        self._ended_ns = started_ns + duration_ns if busy else 0
