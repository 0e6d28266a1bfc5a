"""Costs of a running gateway: time of replicas, shares of requests, and what death leaves."""

from __future__ import annotations

import sqlite3
import time
from itertools import pairwise
from pathlib import Path

import httpx
import pytest

from mileage.cli.replica_watch import PERIOD_S
from mileage.gateway.keys import key_hash, new_key
from tests.support.engine import Behaviour, ScriptedEngine
from tests.support.gateway import Gateway, wait_until

pytestmark = pytest.mark.heavy

KEY = new_key()
SETTLED_S = 60.0


def config(engine: ScriptedEngine) -> str:
    return f"""
[tenants.team]
key_hashes = ["ci={key_hash(KEY)}"]
[costs]
usd_per_gpu_hour = 3.6
[attribution]
window_s = 5
[[engines]]
kind = "vllm"
name = "gpu"
url = "{engine.url}"
gpus = 2
gpu = "h100"
health_interval_s = 0.2
"""


def ask(gateway: Gateway, **headers: str) -> httpx.Response:
    return httpx.post(
        f"{gateway.url}/chat/completions",
        json={"model": "toy", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 8},
        headers={"authorization": f"Bearer {KEY}", **headers},
        timeout=60,
    )


def replica_times(gateway: Gateway) -> list[tuple[str, float, float, float, str]]:
    """State, from, until (seconds since 1970), GPUs and their name."""
    path = gateway.state / "mileage" / "ledger" / "ledger.sqlite"
    if not path.exists():
        return []
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return connection.execute(
            "SELECT state, from_utc_ns / 1e9, until_utc_ns / 1e9, gpus, gpu FROM replica_time "
            "ORDER BY from_utc_ns"
        ).fetchall()
    except sqlite3.OperationalError:
        return []  # the tables are not there yet
    finally:
        connection.close()


def test_what_a_replica_did_is_on_record_also_when_the_gateway_is_killed(tmp_path: Path) -> None:
    with ScriptedEngine() as engine:
        engine.healthy = False  # it answers, and loads its model
        with Gateway(tmp_path, config=config(engine), unready=True) as gateway:
            wait_until(lambda: replica_times(gateway), "it is on record that it loads", 30)
            engine.healthy = True
            gateway.wait_ready()
            up_at_s = time.time()
            wait_until(lambda: len(replica_times(gateway)) == 2, "both states are on record", 15)
            time.sleep(PERIOD_S)
            killed_at_s = time.time()
            gateway.kill_all()
            (warmup, up) = replica_times(gateway)
            assert (warmup[0], up[0]) == ("warmup", "up")
            assert warmup[1] < up_at_s - 1.0 < warmup[2] <= up[1]
            assert up[3:] == (2.0, "H100-SXM5-80GB")
            assert killed_at_s - up[2] < PERIOD_S + 1.0
            gateway.start()
            wait_until(lambda: len(replica_times(gateway)) == 3, "it goes on", 15)
            times = replica_times(gateway)
            assert all(one[2] <= two[1] for one, two in pairwise(times))
            assert times[2][1] > killed_at_s


def test_requests_are_on_the_bill_by_key_and_label(tmp_path: Path) -> None:
    with ScriptedEngine() as engine:
        engine.behaviour = Behaviour(tokens=8, first_token_s=0.05)
        with Gateway(tmp_path, config=config(engine)) as gateway:
            for team in ("search", "search", "ads"):
                assert ask(gateway, **{"x-mileage-labels": f"team={team}"}).status_code == 200
            assert ask(gateway, **{"x-mileage-labels": "team"}).status_code == 400

            def costs(by: str) -> dict[str, float]:
                view = gateway.admin(f"/api/v1/cost?window=1h&by={by}")
                whole = sum(each["gpu_ns"] for each in view["accounts"]) + view["idle_gpu_ns"]
                assert whole == view["gpu_ns_total"]
                return {each["name"]: each["requests"] for each in view["accounts"]}

            wait_until(lambda: costs("label:team") != {}, "the requests are settled", SETTLED_S)
            wait_until(
                lambda: costs("label:team") == {"search": 2, "ads": 1}, "all of them", SETTLED_S
            )
            assert costs("key") == {"ci": 3}
            view = gateway.admin("/api/v1/cost?window=1h&by=tenant")
            assert view["usd_total"] == pytest.approx(view["gpu_ns_total"] / 1e9 / 1000, rel=1e-6)
            admin = gateway.listening.admin_url
            assert admin is not None
            metrics = httpx.get(f"{admin}/metrics").text
            assert 'mileage_capacity_gpu_seconds_total{replica="gpu",state="up"}' in metrics
            assert 'mileage_attributed_gpu_seconds_total{model="toy"' in metrics
