"""The ledger beside a whole gateway at full load: rows stored per second, and how far behind."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.support.cpu_clock import thread_cpu_s, threads_of_niceness
from benchmarks.support.machine import core_times
from benchmarks.support.mileage import MileageStack
from benchmarks.support.nginx import NginxUpstream
from benchmarks.support.output import Output
from benchmarks.support.payloads import CHAT_MODEL, chat_events, chat_request
from benchmarks.support.processes import NotReadyError
from benchmarks.support.rounds import CONNECTIONS
from benchmarks.support.stacks import Upstreams
from benchmarks.support.watch import LOAD_CORE, load_cpu_s
from benchmarks.support.wrk import WrkResult, run_wrk

__all__ = ["beside"]

FEEDER_NICENESS = 5
"""What `Feeder` adds to the niceness of its thread, by which it is found."""
LOOK_S = 3.0
STEADY_S = 45.0
"""From then on the GPU time of earlier requests is shared out while later ones are served; what is
before does not count."""
WARM_S = 2.0
FOREIGN_MAX = 0.1
"""Above this share of a core other programs disturbed the run."""
_ROWS, _LAG = "mileage_ledger_rows_total", "mileage_ledger_lag_bytes"


class _Look:
    """The ledger and its feeder, looked at again and again while the load runs."""

    def __init__(self, mileage: MileageStack) -> None:
        self._mileage, self._pid = mileage, mileage.service.pid
        own = os.getpriority(os.PRIO_PROCESS, self._pid)
        threads = threads_of_niceness(self._pid, own + FEEDER_NICENESS)
        if len(threads) != 1:
            raise NotReadyError(f"{len(threads)} threads look like the ledger's feeder")
        self._feeder = threads[0]
        self._due_s = time.monotonic() + STEADY_S
        self.looks: list[tuple[float, float, float, float]] = []
        """Time, rows, lag in bytes, CPU seconds of the feeder."""

    def __call__(self) -> None:
        if time.monotonic() < self._due_s:
            return
        feeder_s = thread_cpu_s(self._pid, self._feeder)
        told = self._mileage.metrics(_ROWS, _LAG)
        now_s = time.monotonic()
        self.looks.append((now_s, told[_ROWS], told[_LAG], feeder_s))
        self._due_s = now_s + LOOK_S

    def figures(self) -> dict[str, object]:
        """Of the time in which it was looked at; nothing where that is too short."""
        if len(self.looks) < 2:
            return {}
        first, last = self.looks[0], self.looks[-1]
        wall_s = last[0] - first[0]
        return {
            "beside_rows_per_s": round((last[1] - first[1]) / wall_s),
            "beside_lag_bytes_max": round(max(lag for _, _, lag, _ in self.looks)),
            "beside_lag_bytes_end": round(last[2]),
            "beside_feeder_core_share": round((last[3] - first[3]) / wall_s, 3),
        }

    def caught_up_s(self, rows: int, timeout_s: float = 60.0) -> float | None:
        """How long from now until it holds so many rows; None where it never does."""
        began_s = time.monotonic()
        while time.monotonic() - began_s < timeout_s:
            if self._mileage.metrics(_ROWS)[_ROWS] >= rows:
                return time.monotonic() - began_s
            time.sleep(0.1)
        return None


class _Cores:
    """The use of all cores since it was made, by whom."""

    def __init__(self, mileage: MileageStack) -> None:
        self._mileage = mileage
        self._began = self._now()

    def read(self) -> tuple[float, float]:
        """Cores that the gateway used, and programs that take no part."""
        wall_s, gateway_s, load_s, busy_s = (
            b - a for a, b in zip(self._began, self._now(), strict=True)
        )
        return gateway_s / wall_s, max(0.0, busy_s - gateway_s - load_s) / wall_s

    def _now(self) -> tuple[float, ...]:
        busy_s = sum(core.busy_s for core in core_times().values())
        return time.monotonic(), self._mileage.cpu_s(), load_cpu_s(), busy_s


def beside(
    directory: Path, seconds: float, output: Output
) -> tuple[dict[str, object], list[str], list[str]]:
    """wrk as fast as the gateway goes, which runs on any core; figures, failures and doubts."""
    with (
        NginxUpstream(directory, chat_events(2, usage=True), core=LOAD_CORE) as nginx,
        MileageStack(
            Upstreams(nginx.chat_port, nginx.stream_port), directory / "mileage", core=None
        ) as mileage,
    ):
        warmed = _load(mileage, WARM_S, directory, lambda: None)
        look, cores = _Look(mileage), _Cores(mileage)
        loaded = _load(mileage, seconds, directory, look)
        used, foreign = cores.read()
        behind_s = mileage.settled_behind_s()
        caught_up_s = look.caught_up_s(warmed.completed + loaded.completed)
        totals = mileage.settled_ledger(warmed.completed + loaded.completed)
        counted = mileage.counted_requests()
    sent, errors = warmed.completed + loaded.completed, warmed.errors + loaded.errors
    failures = [f"wrk counted {errors} errors"] if errors else []
    # wrk leaves what is in flight when it stops, each time.
    if not sent <= totals.total <= sent + 2 * CONNECTIONS or counted != totals.total:
        failures.append(f"{sent} requests, {counted} in the metrics, {totals.total} rows")
    output.say(f"beside a gateway: {loaded.requests_per_s:,.0f} requests/s")
    figures: dict[str, object] = {
        "beside_requests_per_s": round(loaded.requests_per_s),
        **look.figures(),
        "beside_requests": sent,
        "beside_rows": totals.total,
        "beside_catch_up_s": None if caught_up_s is None else round(caught_up_s, 2),
        "beside_settled_behind_s": round(behind_s, 1) if math.isfinite(behind_s) else None,
        "beside_gateway_cores": round(used, 3),
    }
    doubts = []
    if foreign > FOREIGN_MAX:
        doubts.append(f"other programs took {foreign:.0%} of a core beside the gateway")
    return figures, failures, doubts


def _load(
    mileage: MileageStack, duration_s: float, directory: Path, meanwhile: Callable[[], None]
) -> WrkResult:
    return run_wrk(
        f"http://127.0.0.1:{mileage.chat_port}/v1/chat/completions",
        chat_request(CHAT_MODEL),
        key=mileage.key,
        connections=CONNECTIONS,
        duration_s=duration_s,
        core=LOAD_CORE,
        directory=directory,
        meanwhile=meanwhile,
    )
