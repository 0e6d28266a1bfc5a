"""Looks at processes become facts: means over the window, nothing where nothing was seen."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.doctor.collect.host_facts import HostLook, RoleUse, host_facts
from mileage.doctor.facts import decode_facts


def look(at_s: float, rss_gb: float = 1.0, **values: Any) -> HostLook:
    engine = RoleUse(
        cores=0.8,
        busiest_cores=0.8,
        rss_bytes=int(rss_gb * 1e9),
        threads_max=9,
        processes=1,
        run_queue_wait_ratio=0.3,
    )
    client = RoleUse(cores=1.1, busiest_cores=0.9, processes=2)
    return HostLook(at_s=at_s, roles={"engine": engine, "client": client}, cpus=8, **values)


def test_means_and_the_busiest_process() -> None:
    document = host_facts([look(0, cpus_allowed=2.0), look(1, cpus_allowed=2.0)])
    decode_facts(document)
    signals = document["signals"]
    assert signals["engine_process_cpu_ratio"] == 0.8
    assert signals["cpu_util_ratio"] == 0.4
    assert signals["client_process_cpu_ratio"] == 0.9
    assert signals["engine_run_queue_wait_ratio"] == 0.3
    assert "proxy_process_cpu_ratio" not in signals
    assert "settings" not in document


def test_a_quota_is_told() -> None:
    document = host_facts([look(0, cpu_quota=1.5, throttled_ratio=0.2)])
    assert document["settings"] == {"k8s.cpu_limit": 1.5}
    assert document["signals"]["cpu_throttled_ratio"] == 0.2


def test_a_slope_of_memory_needs_ten_minutes() -> None:
    short = [look(at_s, 1 + at_s / 3600) for at_s in range(0, 300, 10)]
    long = [look(at_s, 1 + at_s / 3600) for at_s in range(0, 1200, 10)]
    assert "host_rss_growth_gb_per_h" not in host_facts(short)["signals"]
    growth = host_facts(long)["signals"]["host_rss_growth_gb_per_h"]
    assert growth == pytest.approx(1.0, rel=1e-3)


def test_no_look_is_no_fact() -> None:
    assert host_facts([]) == {}
