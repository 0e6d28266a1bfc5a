"""`mileage bench scale` on servers of known capacity; replicas of a gateway by its admin plane."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import msgspec
import psutil
import pytest
from typer.testing import CliRunner

from mileage.cli.bench_scale_fleet import GatewayFleet
from mileage.cli.whole_command import app
from mileage.core.errors import ConfigError, EngineError
from mileage.scrape.machine_meter import MachineMeter
from tests.support.loopback_server import LoopbackServer, Seen, http

SERVER = f"{sys.executable} -m tests.support.capacity_server --port {{port}} --service 0.2"
LOAD = ("--duration", "2s", "--warmup", "0.3s", "--prompt-tokens", "8", "--output-tokens", "4")


@pytest.mark.quiet
def test_replicas_that_share_a_lock_bring_nothing(tmp_path: Path) -> None:
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    page = tmp_path / "scale.html"
    result = CliRunner().invoke(
        app,
        [
            *("bench", "scale", "--launch", f"{SERVER} --lock {tmp_path / 'lock'}"),
            *("--replicas", "2", "--concurrency", "2", "--repeats", "1", "--json"),
            *("--report", str(page), *LOAD),
        ],
    )
    assert result.exit_code in (0, 3), result.output  # 3: other programs held the generator up
    found = json.loads(result.stdout)
    one, two = (point["figures"]["requests_per_s"]["mean"] for point in found["points"])
    # One at a time takes 0.2 s: 5 answers a second, however many replicas there are.
    assert one == pytest.approx(5.0, rel=0.3)
    assert two == pytest.approx(5.0, rel=0.3)
    if not any(point["excluded"] for point in found["points"]):
        assert found["knee"] == 1
        assert found["shared"]["at_replicas"] == 2
    assert "Scale-out" in page.read_text()
    after = {process.pid for process in psutil.Process().children(recursive=True)}
    assert after <= before


@pytest.mark.quiet
def test_replicas_that_share_nothing_add_up() -> None:
    result = CliRunner().invoke(
        app,
        [
            *("bench", "scale", "--launch", f"{SERVER} --slots 2", "--replicas", "2"),
            *("--concurrency", "2", "--repeats", "1", "--json", *LOAD),
        ],
    )
    assert result.exit_code in (0, 3), result.output
    one, two = (
        point["figures"]["requests_per_s"]["mean"] for point in json.loads(result.stdout)["points"]
    )
    assert (one, two) == (pytest.approx(10.0, rel=0.3), pytest.approx(20.0, rel=0.3))


class Admin:
    """The admin plane of a gateway with replicas a, b and c, of which c was disabled."""

    def __init__(self) -> None:
        self.enabled = {"a": True, "b": True, "c": False}
        self.asked: list[str] = []

    def answer(self, seen: Seen) -> bytes:
        """As the admin API does it."""
        assert seen.headers["authorization"] == "Bearer secret"
        if seen.method == "POST":
            _, _, _, _, name, verb = seen.target.split("/")
            self.enabled[name] = verb == "enable"
            self.asked.append(f"{verb} {name}")
            return http(200, b"{}")
        rows = [
            {"name": name, "url": f"http://{name}", "enabled": on, "more": 1,
             "state": "up" if on else "disabled"}
            for name, on in self.enabled.items()
        ]  # fmt: skip
        return http(200, msgspec.json.encode({"replicas": rows}))


def test_a_gateways_replicas_are_switched_and_put_back() -> None:
    async def story() -> None:
        admin = Admin()
        async with LoopbackServer(admin.answer) as server:
            fleet = GatewayFleet("http://gateway", server.url, "secret", timeout_s=60.0)
            assert await fleet.start() == 3
            assert await fleet.use(1) == ["http://gateway"]
            assert admin.enabled == {"a": True, "b": False, "c": False}
            await fleet.use(3)
            assert all(admin.enabled.values())
            assert fleet.engines(2) == ["http://a", "http://b"]
            await fleet.end()
            assert admin.enabled == {"a": True, "b": True, "c": False}

    asyncio.run(story())


def test_a_replica_that_does_not_come_up_is_told() -> None:
    async def story() -> None:
        rows = [{"name": "a", "state": "down"}]
        answer = http(200, msgspec.json.encode({"replicas": rows}))
        async with LoopbackServer(lambda seen: answer) as server:
            fleet = GatewayFleet("http://gateway", server.url, "secret", timeout_s=0.1)
            await fleet.start()
            with pytest.raises(EngineError, match="not up: a"):
                await fleet.use(1)

    asyncio.run(story())


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        pytest.param(http(401), "answered 401", id="a wrong token"),
        pytest.param(http(200, b"<html>"), "no answer of an admin plane", id="something else"),
        pytest.param(http(200, b'{"replicas": []}'), "no replicas", id="nothing to switch"),
    ],
)
def test_an_admin_plane_that_is_none(answer: bytes, told: str) -> None:
    async def story() -> None:
        async with LoopbackServer(lambda seen: answer) as server:
            fleet = GatewayFleet("http://gateway", server.url, "secret", timeout_s=0.1)
            with pytest.raises(EngineError, match=told):
                await fleet.start()

    asyncio.run(story())


def test_the_meter_sees_a_busy_thread() -> None:
    meter = MachineMeter({"own": [psutil.Process().pid], "gone": [2**22 - 1]}, period_s=0.05)
    meter.start()
    spent_s = psutil.Process().cpu_times().user
    while psutil.Process().cpu_times().user < spent_s + 0.4:
        sum(range(10_000))
    samples = meter.stop()
    # The first look may come when some of it is spent already, and the kernel counts hundredths.
    assert samples[-1].groups["own"].cpu_s - samples[0].groups["own"].cpu_s >= 0.2
    assert samples[-1].groups["gone"].cpu_s == 0.0
    assert len(samples) >= 2


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        pytest.param(["http://h", "--launch", "x"], "--launch", id="two kinds of fleet"),
        pytest.param(["--launch", "x"], "--replicas", id="how many"),
        pytest.param(["http://h", "--replicas", "2"], "--replicas", id="of servers that run"),
        pytest.param(["--gateway", "http://h", "--balance", "least"], "--balance", id="it chooses"),
        pytest.param(["http://h", "--balance", "most"], "--balance", id="no such way"),
        pytest.param(["http://h", "http://h"], "URL", id="one replica twice"),
        pytest.param(["--launch", "x {host}", "--replicas", "2"], "--launch", id="no such place"),
    ],
)
def test_options_that_cannot_be(arguments: list[str], key: str) -> None:
    result = CliRunner().invoke(app, ["bench", "scale", *arguments, "--concurrency", "1"])
    assert isinstance(result.exception, ConfigError), result.output
    assert result.exception.key == key
