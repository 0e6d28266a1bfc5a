"""What went wrong by an engine's log: memory, preemption, refused requests, the network."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from mileage.doctor.collect.log_line import LogLine

__all__ = ["LogTroubles"]

_OOM: Final = re.compile(r"out of memory", re.IGNORECASE)
_OOM_WORDS: Final = ("CUDA out of memory", "OutOfMemoryError", "HIP out of memory", "cudaMalloc")
_SIZE: Final = r"([\d.]+) ?([KMG]i?B)"
_WANTED: Final = re.compile(rf"Tried to allocate {_SIZE}")
_FREE: Final = re.compile(rf"of which {_SIZE} is free")
_LLAMACPP_WANTED: Final = re.compile(r"allocating ([\d.]+) MiB on device")
_UNITS: Final = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "KB": 2**10, "MB": 2**20, "GB": 2**30}
"""PyTorch before 2.1 wrote GB for GiB."""
_CUMULATIVE: Final = re.compile(r"total_(?:num_)?cumulative_preemption(?:_cnt)?=(\d+)")
_PREEMPTED: Final = re.compile(r"is preempted by PreemptionMode")
_RETRACTED: Final = re.compile(r"#retracted_reqs?: (\d+)")
_RETRACT: Final = "Retract requests"
_ACCESS: Final = re.compile(r'"(?:POST|GET) (/\S*) HTTP/[\d.]+" (\d{3})')
_PROBES: Final = ("/health", "/metrics", "/ping", "/ready", "/live", "/version")
_NETWORK: Final = re.compile(r"Using network (\w+)")
_CHANNEL: Final = re.compile(r"via NET/(\w+)")
_NIC: Final = re.compile(r"NET/(IB|Socket) : Using")
_FAILED_IB: Final = "NET/IB : No device found"
_P2P_OFF: Final = re.compile(r"NCCL_P2P_DISABLE set by environment to (\d)")


class LogTroubles:
    """Collects what went wrong."""

    def __init__(self) -> None:
        self._out_of_memory: set[str] = set()
        self._wanted: float | None = None
        self._free: float | None = None
        self._preempted = self._retracted = 0
        self._cumulative: int | None = None
        self._statuses: dict[str, int] = {}
        self._networks: dict[str, str] = {}
        self.settings: dict[str, Any] = {}

    def take(self, line: LogLine) -> bool:
        """Read a line; False where it tells no trouble."""
        text = line.text
        found = self._take_memory(text)
        if _PREEMPTED.search(text):
            self._preempted += 1
            if (count := _CUMULATIVE.search(text)) is not None:
                self._cumulative = max(self._cumulative or 0, int(count[1]))
            found = True
        elif _RETRACT in text:
            count = _RETRACTED.search(text)
            self._retracted += int(count[1]) if count is not None else 1
            found = True
        elif (access := _ACCESS.search(text)) is not None and not access[1].startswith(_PROBES):
            self._statuses[access[2]] = self._statuses.get(access[2], 0) + 1
        return self._take_network(text) or found

    def signals(self) -> dict[str, Any]:
        """Counts of the log. Several processes tell of one failure, and a log may begin late: those
        of memory and of warned preemptions are at least."""
        signals: dict[str, Any] = {}
        if self._out_of_memory:
            signals["oom_count"] = {"min": 1}
            signals["alloc_failed_gb"] = self._wanted
            signals["gpu_mem_free_gb"] = self._free
        if self._retracted:
            signals["preemptions_count"] = self._retracted
        elif self._preempted:
            # vLLM warns of the first in fifty.
            signals["preemptions_count"] = {"min": self._cumulative or self._preempted}
        if self._statuses:
            signals["http_429_count"] = self._statuses.get("429", 0)
            signals["http_5xx_count"] = sum(
                count for status, count in self._statuses.items() if status.startswith("5")
            )
        return signals

    def network(self) -> Mapping[str, Any]:
        """The transport between nodes: as NCCL names it, else by its channels, else its cards."""
        for source in ("chosen", "channel", "card"):
            if source in self._networks:
                return {"nccl.net_transport": self._networks[source]}
        return {}

    def _take_memory(self, text: str) -> bool:
        if not _OOM.search(text) or not any(words in text for words in _OOM_WORDS):
            return False
        self._out_of_memory.add(text[-200:])
        if (wanted := _WANTED.search(text)) is not None:
            self._wanted = _gb(wanted[1], wanted[2])
        elif (wanted := _LLAMACPP_WANTED.search(text)) is not None:
            self._wanted = _gb(wanted[1], "MiB")
        if (free := _FREE.search(text)) is not None:
            self._free = _gb(free[1], free[2])
        return True

    def _take_network(self, text: str) -> bool:
        if "NCCL" not in text:
            return False
        if (off := _P2P_OFF.search(text)) is not None:
            self.settings["env.NCCL_P2P_DISABLE"] = int(off[1])
            return True
        for source, pattern in (("chosen", _NETWORK), ("channel", _CHANNEL), ("card", _NIC)):
            match = pattern.search(text)
            transport = {"ib": "ib", "socket": "socket"}.get(match[1].lower()) if match else None
            if transport is None:
                continue
            if source != "card" or self._networks.get(source) != "ib":
                self._networks[source] = transport  # its sockets are told beside InfiniBand too
            return True
        return _FAILED_IB in text


def _gb(number: str, unit: str) -> float | None:
    try:
        return float(number) * _UNITS[unit] / 1e9
    except ValueError:
        return None
