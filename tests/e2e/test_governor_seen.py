"""What the admin plane tells of the governor in a real gateway: limits, targets, spend."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.control_site import SITE_TOKEN
from tests.support.controlled_server import ControlledServer
from tests.support.engine import Behaviour, ScriptedEngine
from tests.support.engine_answers import PROMPT_TOKENS
from tests.support.gateway import Gateway, wait_until
from tests.support.knob_site import knob_site
from tests.support.local_http import LOCAL
from tests.support.reload_site import ReloadSite

TOKENS = 5
SECTIONS = """
[server]
workers = 2
[governor]
policy = "static"
static = { limit = 4 }
[slo]
ttft_s = 30
[costs]
usd_per_gpu_hour = 3.6
[tenants.default]
budgets = [{ amount = 10000, unit = "tokens", per = "month" }]
"""
BODY: dict[str, Any] = {
    "model": "toy",
    "messages": [{"role": "user", "content": "hello"}],
    "stream": True,
    "temperature": 1,
    "max_tokens": TOKENS,
}


@pytest.fixture
def engine() -> Iterator[ScriptedEngine]:
    with ScriptedEngine() as engine:
        yield engine


def site_of(directory: Path, engine: ScriptedEngine, sections: str = SECTIONS) -> ReloadSite:
    site = ReloadSite(directory, engine)
    site.write(sections)
    return site


def governor(site: ReloadSite) -> dict[str, Any]:
    document: dict[str, Any] = site.gateway.admin("/api/v1/governor")
    return document


def samples(site: ReloadSite, name: str) -> dict[tuple[str, ...], float]:
    """A metric's samples by the values of their labels, in the order of the labels' names."""
    text = httpx.get(f"{site.gateway.listening.admin_url}/metrics", **LOCAL).text
    return {
        tuple(value for _, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    }


def send(site: ReloadSite, count: int) -> list[int]:
    """So many streams at once; their statuses."""

    async def all_of_them() -> list[int]:
        async with httpx.AsyncClient(**LOCAL) as client:
            url = f"{site.gateway.url}/chat/completions"
            answers = await asyncio.gather(*(client.post(url, json=BODY) for _ in range(count)))
        return [answer.status_code for answer in answers]

    return asyncio.run(all_of_them())


def test_streams_are_measured_against_the_targets_in_force(
    tmp_path: Path, engine: ScriptedEngine
) -> None:
    engine.behaviour = Behaviour(tokens=TOKENS, first_token_s=0.05)
    site = site_of(tmp_path, engine)
    with site.gateway:
        assert send(site, 6) == [200] * 6
        met = {("yes", "toy", "ttft"): 6, ("yes", "toy", "all"): 6}
        wait_until(lambda: samples(site, "mileage_slo_requests_total") == met, "six met")
        assert governor(site)["targets"] == [{"model": None, "ttft_s": 30, "itl_s": None}]
        late = SECTIONS.replace("ttft_s = 30", "ttft_s = 0.01")
        site.reload(late.replace("[slo]", "reject_late = false\n[slo]"))
        assert send(site, 3) == [200] * 3
        missed = {**met, ("no", "toy", "ttft"): 3, ("no", "toy", "all"): 3}
        wait_until(lambda: samples(site, "mileage_slo_requests_total") == missed, "three missed")
        assert samples(site, "mileage_target_seconds") == {("*", "ttft"): 0.01}


def test_limits_and_spend_are_of_all_workers_together(
    tmp_path: Path, engine: ScriptedEngine
) -> None:
    engine.behaviour = Behaviour(tokens=TOKENS)
    site = site_of(tmp_path, engine)
    with site.gateway:
        assert send(site, 8) == [200] * 8
        # Each worker keeps to its part of the limit, and the parts make the whole.
        wait_until(lambda: site.gateway.replica()["limit"] == 4, "the limit of both workers")
        assert samples(site, "mileage_replica_limit") == {("a",): 4}
        assert samples(site, "mileage_governor_mode") == {("act",): 2}
        assert samples(site, "mileage_governor_failed") == {(): 0}
        used = 8 * (PROMPT_TOKENS + TOKENS)

        def spent() -> bool:
            document = governor(site)
            (tenant,), (budget,) = document["tenants"], document["budgets"]
            told = (tenant["tenant"], tenant["requests"], budget["spent"], budget["left"])
            return told == ("default", 8, used, 10_000 - used)

        wait_until(spent, "what all workers spent")
        (tenant,) = governor(site)["tenants"]
        assert tenant["gpu_s"] > 0
        assert tenant["cost_usd"] == pytest.approx(tenant["gpu_s"] * 3.6 / 3600, rel=0.01)
        assert samples(site, "mileage_budget_spent") == {("month", "default", "tokens"): used}
        assert samples(site, "mileage_queue_time_seconds_count") == {("toy",): 8}
        (decision, *_) = governor(site)["decisions"]
        assert (decision["kind"], decision["subject"], decision["limit"]) == ("limit", "a", 4)


def test_a_full_queue_is_seen_while_it_is_there(tmp_path: Path, engine: ScriptedEngine) -> None:
    engine.behaviour = Behaviour(tokens=TOKENS, hold_at=0)
    sections = SECTIONS.replace("workers = 2", "workers = 1").replace("limit = 4", "limit = 2")
    site = site_of(tmp_path, engine, sections.replace("[slo]", "queue_max = 3\n[slo]"))
    with site.gateway:
        url = f"{site.gateway.url}/chat/completions"

        async def crowd() -> list[int]:
            async with httpx.AsyncClient(**LOCAL) as many:
                tasks = [asyncio.create_task(many.post(url, json=BODY)) for _ in range(9)]
                await asyncio.to_thread(
                    wait_until, lambda: governor(site)["held"] == 3, "three that are held"
                )
                document = governor(site)
                assert document["held_by_tenant"] == {"default": 3}
                assert document["rejected_total"] == {"queue_full": 4}
                newest = document["decisions"][0]
                assert (newest["subject"], newest["reason"]) == ("default", "queue_full")
                assert site.gateway.replica()["held"] == 3
                assert samples(site, "mileage_queue_requests") == {(): 3}
                engine.release()
                return [(await task).status_code for task in tasks]

        assert sorted(asyncio.run(crowd())) == [200] * 5 + [503] * 4
        rejected = {("queue_full", "default"): 4}
        assert samples(site, "mileage_requests_rejected_total") == rejected
        # Those that were refused for want of room have missed all targets.
        wait_until(
            lambda: samples(site, "mileage_slo_requests_total").get(("no", "toy", "all")) == 4,
            "four that missed",
        )


CONTROLLED = """
[governor]
policy = "static"
static = {{ limit = 4 }}
[[engines]]
kind = "vllm"
name = "gpu"
url = "{url}"
control = {{ token_file = "{token}" }}
"""


def test_an_engine_without_a_control_is_governed_by_the_gateway_alone(
    tmp_path: Path, engine: ScriptedEngine
) -> None:
    token = tmp_path / "token"
    token.write_text("a-token-of-sixteen-characters")
    config = CONTROLLED.format(url=engine.url, token=token)
    with Gateway(tmp_path, config=config) as gateway:
        found = wait_until(
            lambda: (row := gateway.replica("gpu"))["control"]["state"] == "fault" and row,
            "the control is found to be missing",
        )
        assert (found["control"]["error_kind"], found["control"]["asked"]) == ("absent", None)
        answer = httpx.post(f"{gateway.url}/chat/completions", json=BODY, **LOCAL)
        assert answer.status_code == 200
        wait_until(lambda: gateway.replica("gpu")["limit"] == 4, "the gateway's own limit")
        again = wait_until(
            lambda: (c := gateway.replica("gpu")["control"])["requests_total"]["absent"] > 1 and c,
            "it is asked again",
        )
        assert again["state"] == "fault"
        told = [
            row for row in gateway.admin("/api/v1/governor")["decisions"] if row["kind"] == "engine"
        ]
        assert [row["subject"] for row in told] == ["gpu"]
        assert gateway.log.count("is the plugin in it?") == 1
        assert token.read_text() not in gateway.log


def test_an_engine_with_a_control_keeps_the_limit_itself_until_the_gateway_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    token.write_text(SITE_TOKEN)
    with knob_site(monkeypatch) as site, ControlledServer(site) as server:
        config = CONTROLLED.format(url=server.url, token=token)
        with Gateway(tmp_path, "--workers", "2", config=config) as gateway:
            wait_until(lambda: site.scheduler.max_num_active_reqs == 4, "it has the limit")
            row = wait_until(
                lambda: (row := gateway.replica("gpu"))["control"]["state"] == "held" and row,
                "it is told",
            )
            assert (row["control"]["asked"], row["control"]["applied"], row["limit"]) == (4, 4, 4)
            wait_until(
                lambda: gateway.replica("gpu")["control"]["running_max"] == 64, "what it runs"
            )
            site.start()
            wait_until(lambda: site.scheduler.max_num_active_reqs == 4, "asked for anew")
            wait_until(
                lambda: gateway.replica("gpu")["control"]["restarts_total"] == 1, "it is told"
            )
            decisions = gateway.admin("/api/v1/governor")["decisions"]
            assert [row["subject"] for row in decisions if row["kind"] == "engine"] == ["gpu"]
        assert site.scheduler.max_num_active_reqs == 64
