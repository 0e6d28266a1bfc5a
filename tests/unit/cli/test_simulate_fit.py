"""mileage simulate fit, and simulations of what it learned."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from mileage.control.config import ControlConfig
from mileage.core.events import Arrived, Event, Finished, FirstToken, Observed, ReplicaUp
from mileage.core.replica import ReplicaView
from mileage.core.timeline import RequestTimeline
from mileage.costmodel.served import ServedRequest
from mileage.measure.quantiles import quantile
from mileage.storage.sqlite import DATABASE_NAME, SqliteStore
from tests.support.journals import request
from tests.support.ledger_records import BASE_UTC_NS, store_ends, streamed
from tests.support.lockstep_engine import arrivals, serve
from tests.support.served_journal import JournalOfOne
from tests.support.simulate_cli import document, error_of, simulate

SLOTS, BUDGET, CACHED = 8, 256, 24


def step_s(decoding: int, context: int, prefill: int) -> float:
    return 0.002 + 0.006 * decoding + 1.5e-5 * context + 0.003 * prefill


def answers(seed: int, rate_per_s: float = 0.9, *, longest: int = 400) -> list[ServedRequest]:
    load = arrivals(160, rate_per_s, seed, prompt=(30, longest), output=(4, 60))
    return serve(load, step_s, slots=SLOTS, step_tokens_max=BUDGET, cached=CACHED, before_s=0.004)


def record(number: int, served: ServedRequest) -> RequestTimeline:
    assert served.first_s is not None
    at_s = served.dispatched_s
    times = served.token_times_s
    gaps = [after - before for before, after in pairwise(times)]
    return streamed(
        number,
        replica="engine",
        arrived_at_utc_ns=BASE_UTC_NS + round(at_s * 1e9),
        dispatched_s=0.0,
        first_token_s=served.first_s - at_s,
        last_token_s=served.last_s - at_s,
        finished_s=served.last_s - at_s,
        prompt_tokens=served.prompt_tokens,
        cached_tokens=served.cached_tokens,
        output_tokens=served.output_tokens,
        output_tokens_counted=served.output_tokens,
        token_times=tuple(x for at in times for x in (round((at - at_s) * 1e6), 1)),
        itl_mean_s=sum(gaps) / len(gaps) if gaps else None,
    )


def ledger(directory: Path, served: list[ServedRequest]) -> Path:
    directory.mkdir(exist_ok=True)
    store = SqliteStore(directory / DATABASE_NAME)
    store_ends(store, [record(number, each) for number, each in enumerate(served)])
    store.close()
    return directory


def journal(directory: Path, served: list[ServedRequest]) -> Path:
    """What the controller was told of these, and of an engine with 8 slots."""
    config = ControlConfig(replica_running_max={"engine": SLOTS})
    written = JournalOfOne(directory, "engine", config=config, began_at_utc_ns=BASE_UTC_NS)
    view = ReplicaView(replica="engine", observed_s=0.0, kv_tokens_max=16_384)
    told: list[tuple[float, Event]] = [
        (0.0, ReplicaUp("engine", ("llama",))),
        (0.0, Observed(view)),
    ]
    for number, each in enumerate(served, 1):
        assert each.first_s is not None
        steps = each.output_tokens - 1
        mean_s = (each.last_s - each.first_s) / steps if steps else None
        done = Finished(
            number, each.prompt_tokens, each.cached_tokens, each.output_tokens, mean_s, mean_s
        )
        told.append((each.dispatched_s, Arrived(request(number, arrived_s=each.dispatched_s))))
        told += [(each.first_s, FirstToken(number)), (each.last_s, done)]
    for at_s, event in sorted(told, key=lambda each: each[0]):
        written.tell(event, at_s)
    written.close()
    return directory


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file learned from a ledger and a journal of the same time."""
    directory = tmp_path_factory.mktemp("learned")
    served = answers(7)
    records = str(ledger(directory / "ledger", served))
    told = str(journal(directory / "journal", served))
    found = document(
        "fit", "--ledger", records, "--journal", told, "--out", str(directory / "engine.json")
    )
    assert (found["kind"], found["running_max"], found["kv_tokens_max"]) == ("steps", 8, 16_384)
    assert found["model"] == "smollm2"
    return directory / "engine.json"


def test_a_fresh_run_of_the_engine_is_predicted(fitted: Path, tmp_path: Path) -> None:
    fresh = answers(23, 0.6, longest=250)
    trace = ledger(tmp_path / "ledger", fresh)
    found = document("--engine", str(fitted), "--trace", str(trace), "--policy", "off")
    assert found["requests"] == 160
    ttft_s = quantile([(each.first_s or 0.0) - each.dispatched_s for each in fresh], 0.5)
    assert found["ttft_s"]["p50"] == pytest.approx(ttft_s, rel=0.02)
    itl_s = [
        (each.last_s - (each.first_s or 0.0)) / (each.output_tokens - 1)
        for each in fresh
        if each.output_tokens > 1
    ]
    assert found["itl_mean_s"]["p50"] == pytest.approx(quantile(itl_s, 0.5), rel=0.02)
    assumed = found["assumptions"]
    assert assumed["step_times"].startswith("fitted to")
    assert assumed["extrapolated"] == []
    assert assumed["engine"]["running_max"] == SLOTS


def test_what_was_never_seen_is_told(fitted: Path) -> None:
    trace = "synthetic:rate=1,duration=20s,prompt=uniform:500:900,output=uniform:100:200"
    found = document("--engine", str(fitted), "--trace", trace, "--engine-max-seqs", "16")
    told = found["assumptions"]["extrapolated"]
    assert any("prompt tokens" in line for line in told)
    assert any("output tokens" in line for line in told)
    assert any("requests at once" in line for line in told)
    shown = simulate("--engine", str(fitted), "--trace", trace)
    assert "beyond what it was learned from" in shown.stdout


def test_a_fitted_engine_has_features_too(fitted: Path, tmp_path: Path) -> None:
    trace = "synthetic:rate=1,duration=30s,prompt=uniform:10:40,output=uniform:5:20"
    plain = document("--engine", str(fitted), "--trace", trace, "--policy", "off")
    options = (
        "--engine-option",
        "static_batch.size=4",
        "--engine-option",
        "static_batch.delay_s=2",
    )
    batched = document("--engine", str(fitted), "--trace", trace, "--policy", "off", *options)
    assert batched["ttft_s"]["p50"] > plain["ttft_s"]["p50"]
    assert batched["assumptions"]["engine"]["block_tokens"] == 1, "as learned"
    file = tmp_path / "scenario.toml"
    file.write_text("[engine]\nrunning_max = 2\n")
    few = document("--engine", str(fitted), "--trace", trace, "--scenario", str(file))
    assert few["assumptions"]["engine"]["running_max"] == 2


def test_a_journal_alone_tells_mean_steps(tmp_path: Path) -> None:
    path = journal(tmp_path / "journal", answers(7))
    found = document("fit", "--journal", str(path), "--out", str(tmp_path / "engine.json"))
    assert (found["kind"], found["running_max"]) == ("answers", SLOTS)
    assert found["steps"]["planes"][0][3] == pytest.approx(0.003, rel=0.2)


def test_people_see_what_a_step_takes(tmp_path: Path) -> None:
    path = ledger(tmp_path / "ledger", answers(7))
    result = simulate("fit", "--ledger", str(path), "--out", str(tmp_path / "engine.json"))
    assert result.exit_code == 0, result.output
    assert "3 ms a prompt token" in result.stdout
    assert "160 answers" in result.stdout


def test_too_little_is_not_enough_evidence(tmp_path: Path) -> None:
    path = ledger(tmp_path / "ledger", answers(7)[:2])
    result = simulate("fit", "--ledger", str(path), "--out", str(tmp_path / "engine.json"))
    assert result.exit_code == 3
    assert not (tmp_path / "engine.json").exists()


def test_an_engine_that_is_not_in_the_ledger_is_an_error(tmp_path: Path) -> None:
    path = ledger(tmp_path / "ledger", answers(7)[:2])
    assert "engine" in error_of("fit", "--ledger", str(path), "--replica", "gpu-z")


def test_what_cannot_be_learned_is_told_before_or_by_option(tmp_path: Path) -> None:
    records = str(ledger(tmp_path / "ledger", answers(7)))
    assert error_of(
        "fit", "--ledger", records, "--out", str(tmp_path / "no" / "e.json")
    ).startswith("--out: got")
    assert error_of("fit", "--ledger", records, "--out", str(tmp_path)).endswith(".json")
    nowhere = ("--journal", str(tmp_path / "nowhere"), "--out", str(tmp_path / "e.json"))
    assert error_of("fit", "--ledger", records, *nowhere).startswith("--journal: got")
    limits = ("--engine-max-seqs", "1000", "--engine-tokens", "5")
    told = error_of("fit", "--ledger", records, "--out", str(tmp_path / "e.json"), *limits)
    assert told == "--engine-max-seqs: got 1000, expected at most the tokens of a step (5)"
    assert simulate("fit", "--ledger", records, "--engine-tokens", "99999999999").exit_code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["ledger"]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        pytest.param("--gpu", "h100", id="a GPU beside what was measured"),
        pytest.param("--model", "llama-3.1-8b", id="a model beside what was measured"),
        pytest.param("--tp", "2", id="more GPUs than were measured"),
        pytest.param("--engine-max-seqs", "1000", id="more requests than a step has tokens"),
    ],
)
def test_what_a_fitted_engine_cannot_be_is_an_error(fitted: Path, option: str, value: str) -> None:
    tokens = ("--engine-tokens", "256") if option == "--engine-max-seqs" else ()
    told = error_of(
        "--engine", str(fitted), "--trace", "synthetic:rate=1,duration=5s", option, value, *tokens
    )
    assert option in told


def test_a_file_that_is_no_fitted_engine_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "engine.json"
    for content in (None, b"{}", b"\xff"):
        if content is not None:
            path.write_bytes(content)
        told = error_of("--engine", str(path), "--trace", "synthetic:rate=1,duration=5s")
        assert "--engine" in told


@pytest.mark.parametrize("term", range(4))
def test_step_times_that_no_engine_has_are_an_error(
    fitted: Path, tmp_path: Path, term: int
) -> None:
    tree = json.loads(fitted.read_bytes())
    tree["steps"]["planes"][0][term] = 1e6
    path = tmp_path / "engine.json"
    path.write_text(json.dumps(tree))
    told = error_of("--engine", str(path), "--trace", "synthetic:rate=1,duration=5s")
    assert told.startswith("--engine: got")
    assert "(planes)" in told
