"""`mileage cost` on a ledger that was fed, and settled in part, as by a gateway: it adds up."""

from __future__ import annotations

from pathlib import Path

import pytest

from mileage.ledger.attribution_config import AttributionConfig
from mileage.ledger.replica_attribution import ReplicaAttribution
from tests.support.cost_cli import CostSite
from tests.support.usage_world import HOUR_UTC_S, UsageWorld, ran

END_S = 5400
NS = 1_000_000_000


def attribution(replica: str) -> ReplicaAttribution:
    return ReplicaAttribution(replica, AttributionConfig())


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An hour and a half of two replicas of two GPUs; the last ten minutes are not settled, and
    every tenth request failed."""
    directory = tmp_path_factory.mktemp("cost")
    (directory / "ledger").mkdir()
    world = UsageWorld(directory / "ledger", sharing=attribution)
    for replica in ("a", "b"):
        world.seen(0, 60, replica=replica, state="warmup", gpus=2.0)
        world.seen(60, END_S, replica=replica, gpus=2.0)
    world.ends(
        *(
            ran(
                n,
                60 + 11 * n,
                25 + n % 40,
                replica="ab"[n % 2],
                labels=f"app=x{n % 4}",
                outcome="failed" if n % 10 == 0 else "ok",
                first_token_s=2.0,
                last_token_s=20.0,
                stream=True,
            )
            for n in range(470)
        )
    )
    world.settle(END_S - 600)
    world.close()
    return directory


@pytest.fixture
def site(directory: Path, monkeypatch: pytest.MonkeyPatch) -> CostSite:
    """The command on it, just after that time."""
    monkeypatch.setattr("time.time", lambda: float(HOUR_UTC_S + END_S))
    site = CostSite(directory)
    site.config("[[billing.prices]]\nusd_per_gpu_hour = 1.7\n")
    return site


@pytest.mark.parametrize(
    ("by", "options"),
    [
        pytest.param("tenant", (), id="by tenant"),
        pytest.param("tenant", ("--spread", "use"), id="idle time paid by use"),
        pytest.param("label:app", (), id="by label"),
        pytest.param("request", (), id="by request"),
        pytest.param(
            "request",
            ("--since", "2025-11-29T15:20", "--until", "2025-11-29T15:57"),
            id="requests across both ends",
        ),
        pytest.param("hour", (), id="by hour"),
        pytest.param("day", ("--timezone", "Asia/Kathmandu"), id="by day"),
    ],
)
def test_settled_and_provisional_time_is_the_capacity(
    site: CostSite, by: str, options: tuple[str, ...]
) -> None:
    document = site.document("--by", by, *options)
    length_s = END_S if "--until" not in options else 37 * 60
    assert document["gpu_ns_total"] == 2 * 2 * length_s * NS
    assert float(document["usd_total"]) == pytest.approx(1.7 * 4 * length_s / 3600, abs=1e-7)
    accounts = document["accounts"]
    for key, idle in (("gpu_ns", "idle_gpu_ns"), ("usd", "idle_usd")):
        total = document["gpu_ns_total" if key == "gpu_ns" else "usd_total"]
        assert sum(account[key] for account in accounts) + document[idle] == total
    assert document["window"]["provisional"] == ("--until" not in options)
    if "--until" not in options:
        assert sum(account["requests"] for account in accounts) == 470
        assert sum(account["requests_failed"] for account in accounts) == 47
    assert document["where"]["decode"]["gpu_ns"] > 0


def test_every_request_of_the_time_has_its_share(site: CostSite) -> None:
    document = site.document("--by", "request")
    names = [account["name"] for account in document["accounts"]]
    assert "(requests not on record)" not in names
    assert sum(name.isdigit() for name in names) == 470
