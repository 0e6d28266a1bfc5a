"""mileage bench tail as a process: one slow request among many, in every form that it is told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.bench_cli import QUICK, bench
from tests.support.engine import Behaviour, ScriptedEngine

RUN = QUICK[: QUICK.index("--metrics-url")]
USUAL = Behaviour(tokens=3, first_token_s=0.005, token_s=0.002)


@pytest.fixture
def engine() -> Iterator[ScriptedEngine]:
    with ScriptedEngine() as engine:
        engine.behaviour = USUAL
        yield engine


def slow_after(engine: ScriptedEngine, count: int) -> None:
    """One request, `count` after the next, waits long for its first token."""
    engine.following.extend([USUAL] * count)
    engine.following.append(Behaviour(tokens=3, first_token_s=0.9, token_s=0.002))


@pytest.mark.quiet
def test_the_document_names_the_stage_and_what_was_looked_at(
    engine: ScriptedEngine, tmp_path: Path
) -> None:
    slow_after(engine, 30)
    page = tmp_path / "tail.html"
    told = bench(
        "tail", engine.url, "--model", "toy", *RUN, "--requests-min", "1", "--json",
        "--report", str(page),
    )  # fmt: skip
    assert told.code in (0, 3), told.err
    tail = told.document["tail"]
    assert tail["first"]["stage"] == "upstream_wait"
    assert tail["first"]["excess_s"] > 0.5
    assert sum(share["tail_s"] for share in tail["stages"]) == pytest.approx(tail["tail_mean_s"])
    (worst, *_) = tail["waterfalls"]
    assert worst["slices"][0]["start_s"] == 0.0
    assert worst["slices"][-1]["end_s"] == pytest.approx(worst["latency_s"])
    sources = {source["name"]: source for source in told.document["sources"]}
    assert sources["generator"]["seen"]
    assert sources["kernel"]["seen"]
    text = page.read_text()
    assert "upstream wait comes first" in text
    assert "http-equiv" in text


@pytest.mark.quiet
def test_the_table_is_for_people(engine: ScriptedEngine) -> None:
    slow_after(engine, 30)
    told = bench("tail", engine.url, "--model", "toy", *RUN, "--requests-min", "1", "--no-host")
    assert "upstream wait comes first" in told.out
    assert "processes: not seen: not looked at" in told.out


@pytest.mark.quiet
def test_an_ordinary_run_tells_of_its_tail_beside_its_figures(
    engine: ScriptedEngine, tmp_path: Path
) -> None:
    slow_after(engine, 30)
    saved = tmp_path / "run.mlrun"
    told = bench(
        engine.url, "--model", "toy", *RUN, "--tail", "--no-host", "--json", "--save", str(saved)
    )
    assert told.code in (0, 3), told.err
    assert told.document["requests_ok"] > 10
    assert told.document["e2e_s"]["max"] > 0.5
    assert told.document["tail"]["first"]["stage"] == "upstream_wait"
    sources = {source["name"]: source for source in told.document["sources"]}
    assert not sources["processes"]["seen"]
    assert saved.exists()


@pytest.mark.quiet
def test_an_ordinary_run_shows_its_tail_behind_its_figures(engine: ScriptedEngine) -> None:
    slow_after(engine, 30)
    told = bench(engine.url, "--model", "toy", *RUN, "--tail", "--no-host")
    assert told.code in (0, 3), told.err
    assert told.out.index("TTFT") < told.out.index("upstream wait comes first")


def test_an_ordinary_run_whose_requests_fail_has_no_tail(engine: ScriptedEngine) -> None:
    engine.behaviour = Behaviour(status=500)
    told = bench(engine.url, "--model", "toy", *RUN, "--tail", "--no-host", "--json")
    assert told.code == 1
    assert told.document["tail"] is None


@pytest.mark.parametrize(
    "options", [("--no-host",), ("--ebpf",), ("--ledger", "x"), ("--admin-url", "http://h")]
)
def test_what_is_of_the_tail_needs_it(options: tuple[str, ...]) -> None:
    told = bench("http://127.0.0.1:1", *RUN, *options, "--json")
    assert told.code == 2
    assert told.document["error"]["key"] == options[0]
    assert "--tail" in told.document["error"]["expected"]


def test_of_few_requests_nothing_is_told(engine: ScriptedEngine) -> None:
    told = bench(
        "tail", engine.url, "--model", "toy", *RUN, "--warmup", "0s", "--requests", "5", "--json"
    )
    assert told.code == 3, told.err
    assert told.document["tail"]["first"] is None


def test_where_nobody_answers_it_says_so() -> None:
    told = bench("tail", "http://127.0.0.1:1", "--model", "toy", *RUN, "--json")
    assert told.code == 1
    assert told.document["tail"] is None
    assert told.document["error"] is not None


@pytest.mark.parametrize(
    ("options", "key"),
    [
        pytest.param(("--latency", "itl"), "--latency", id="a latency that has no stages"),
        pytest.param(("--share", "0.9"), "--share", id="more than half"),
        pytest.param(("--admin-token-env", "NOT_SET"), "--admin-token-env", id="no such variable"),
        pytest.param(("--admin-token-file", "none"), "--admin-token-file", id="no such file"),
    ],
)
def test_bad_options_are_named(engine: ScriptedEngine, options: tuple[str, ...], key: str) -> None:
    told = bench("tail", engine.url, "--model", "toy", *RUN, *options)
    assert told.code == 2
    assert key in told.err
