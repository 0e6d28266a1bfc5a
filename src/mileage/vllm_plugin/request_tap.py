"""RequestTap: tells the ledger of each request that a vLLM engine has ended: its queue, tokens."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from functools import partial
from typing import Any

from mileage.ledger.engine_request import EngineRequest, lost_requests_record, request_record
from mileage.vllm_plugin.gateway_names import GatewayNames
from mileage.vllm_plugin.record_channel import ChannelLimits, RecordChannel
from mileage.vllm_plugin.step_tap import TapSettings

__all__ = ["RequestTap"]

_LIMITS = ChannelLimits(waiting_bytes=4 << 20, file_bytes=8 << 20, files_bytes=128 << 20)


class RequestTap:
    """Turns what vLLM's stat loggers are told of ended requests into records.

    Those that did not come through the gateway are left out: the ledger has no row of them.
    """

    def __init__(self, settings: TapSettings, limits: ChannelLimits | None = None) -> None:
        self._replica = settings.replica
        self._names = GatewayNames(settings.directory)
        self.requests_total = 0
        """Told, of this gateway's."""
        self.nameless_total = 0
        """Of a vLLM that does not say which request it was."""
        self.channel = RecordChannel(
            settings.directory,
            re.sub(r"[^A-Za-z0-9._-]", "_", settings.replica),
            ".requests",
            partial(lost_requests_record, settings.replica),
            limits or _LIMITS,
            tick=self._names.look,
        )
        self.channel.start()

    def ended(self, requests: Iterable[Any], now_utc_ns: int) -> None:
        """Tell of these: vLLM's FinishedRequestStats, by their plain attributes."""
        for stats in requests:
            name = getattr(stats, "request_id", None)
            if name is None:
                self.nameless_total += 1
                continue
            request_id = self._names.id_of(name)
            if request_id is None:
                continue
            self.requests_total += 1
            record = request_record(_engine_request(self._replica, request_id, stats, now_utc_ns))
            self.channel.put(record, now_utc_ns, now_utc_ns)


def _engine_request(replica: str, request_id: int, stats: Any, now_utc_ns: int) -> EngineRequest:
    # Without its scheduler's events vLLM has 0 for every moment, and so for every time between.
    timed = _seconds(stats, "prefill_time") or _seconds(stats, "inference_time")
    return EngineRequest(
        replica,
        now_utc_ns,
        request_id,
        queue_s=_seconds(stats, "queued_time") if timed else None,
        prefill_s=_seconds(stats, "prefill_time") if timed else None,
        decode_s=_seconds(stats, "decode_time") if timed else None,
        prompt_tokens=_count(stats, "num_prompt_tokens"),
        cached_tokens=_count(stats, "num_cached_tokens"),
        output_tokens=_count(stats, "num_generation_tokens"),
        preemptions=_count(stats, "num_preemptions"),
    )


def _seconds(stats: Any, name: str) -> float | None:
    """None where there is no such time, or none that can be: a moment of it was not told."""
    value = getattr(stats, name, None)
    if not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        return None
    return float(value)


def _count(stats: Any, name: str) -> int:
    value = getattr(stats, name, None)
    return max(0, value) if isinstance(value, int) else 0
