"""Looks at the processes of a server and its machine -> facts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from mileage.doctor.collect.facts_document import FactsDocument, facts_document

__all__ = ["HostLook", "RoleUse", "host_facts"]

GROWTH_WINDOW_MIN_S = 600.0
"""A slope of memory over less time is noise: caches fill, pages are touched for the first time."""

GB = 1e9


class RoleUse(msgspec.Struct, frozen=True, kw_only=True):
    """Processes of one role since the look before; None: not told."""

    cores: float | None = None
    """CPU seconds per second, all processes together."""
    busiest_cores: float | None = None
    """Of the busiest process."""
    rss_bytes: int | None = None
    threads_max: int | None = None
    """Threads of the process that has most."""
    processes: int = 0
    run_queue_wait_ratio: float | None = None
    """Of the thread that waited longest: its share of the time ready to run, without a core."""


class HostLook(msgspec.Struct, frozen=True, kw_only=True):
    """One look; `at_s` is monotonic. Roles: engine, gateway, client (of this machine), other."""

    at_s: float
    roles: dict[str, RoleUse]
    cpus: int
    """Logical CPUs of the machine."""
    cpus_allowed: float | None = None
    """CPUs that the engine may use: its affinity, or less by its quota."""
    cpu_quota: float | None = None
    """CFS quota of the engine's control group, in cores; None: none is set."""
    throttled_ratio: float | None = None
    io_wait_ratio: float | None = None
    uptime_s: float | None = None
    """Age of the engine's oldest process."""
    client_connections: int | None = None
    """Open connections to the server's port, from anywhere."""


def host_facts(looks: Sequence[HostLook]) -> FactsDocument:
    """The facts: means over the window, of the busiest process where the name says so."""
    if not looks:
        return {}
    last = looks[-1]
    engine = [look.roles["engine"] for look in looks if "engine" in look.roles]
    cores = _mean(use.cores for use in engine)
    allowed = last.cpus_allowed
    waits = [use.run_queue_wait_ratio for use in engine]
    signals: dict[str, Any] = {
        "engine_process_cpu_ratio": cores,
        "proxy_process_cpu_ratio": _role_mean(looks, "gateway"),
        "client_process_cpu_ratio": _role_mean(looks, "client"),
        "other_process_cpu_cores": _mean(
            look.roles["other"].cores for look in looks if "other" in look.roles
        ),
        "engine_run_queue_wait_ratio": _mean(waits),
        "cpu_cores_used": cores,
        "cpu_util_ratio": _ratio(cores, allowed),
        "cpu_throttled_ratio": _mean(look.throttled_ratio for look in looks),
        "cpu_visible_count": last.cpus,
        "threads_per_process_count": max(
            (use.threads_max for use in engine if use.threads_max is not None), default=None
        ),
        "host_rss_gb": _gb(engine[-1].rss_bytes) if engine else None,
        "host_rss_growth_gb_per_h": _growth(looks),
        "io_wait_ratio": _mean(look.io_wait_ratio for look in looks),
        "process_uptime_s": last.uptime_s,
    }
    settings = {} if last.cpu_quota is None else {"k8s.cpu_limit": last.cpu_quota}
    return facts_document(
        hardware={"cpus": last.cpus}, settings=settings, signals=_rounded(signals)
    )


def _role_mean(looks: Sequence[HostLook], role: str) -> float | None:
    return _mean(look.roles[role].busiest_cores for look in looks if role in look.roles)


def _mean(values: Any) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _ratio(above: float | None, below: float | None) -> float | None:
    if above is None or not below:
        return None
    return min(1.0, above / below)


def _gb(count: int | None) -> float | None:
    return None if count is None else count / GB


def _growth(looks: Sequence[HostLook]) -> float | None:
    """Least squares over the window, in GB per hour; None where it is too short to tell."""
    points = [
        (look.at_s, use.rss_bytes / GB)
        for look in looks
        if (use := look.roles.get("engine")) is not None and use.rss_bytes is not None
    ]
    if len(points) < 3 or points[-1][0] - points[0][0] < GROWTH_WINDOW_MIN_S:
        return None
    middle_s = sum(at for at, _ in points) / len(points)
    spread = sum((at - middle_s) ** 2 for at, _ in points)
    return sum((at - middle_s) * gb for at, gb in points) / spread * 3600.0


def _rounded(signals: dict[str, Any]) -> dict[str, Any]:
    return {k: round(v, 6) if isinstance(v, float) else v for k, v in signals.items()}
