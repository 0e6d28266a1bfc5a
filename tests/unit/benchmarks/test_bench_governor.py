"""The governor's benchmark: its configurations, its statistics, its command line."""

from __future__ import annotations

import json
import tomllib
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.governor import CHAPTERS, Bench, main
from benchmarks.support.calls import Call
from benchmarks.support.governed import tenant_key, toml_text
from benchmarks.support.governor_jitter import jitter
from benchmarks.support.governor_merging import span_s
from benchmarks.support.governor_part import Part, Surroundings
from benchmarks.support.governor_tenants import share_ratio, work_done_s
from benchmarks.support.output import Output
from benchmarks.support.processes import NotReadyError
from benchmarks.support.step_model import MODELS
from benchmarks.support.verdict import FAILED, NO_VERDICT, PASSED, Bar
from mileage.control.config import GovernorConfig
from mileage.gateway.config import TenantConfig
from mileage.gateway.keys import key_hash


def test_sections_become_toml_that_the_gateway_reads() -> None:
    config = {
        "server": {"port": 1, "host": None},
        "governor": {"policy": "static", "static": {"limit": 4}},
        "engines": [{"kind": "vllm", "models": ["a", "b"]}, {"kind": "openai"}],
        "tenants": {
            "a b": {
                "key_hashes": [key_hash(tenant_key("a"))],
                "budgets": [{"amount": 5.0, "unit": "tokens", "per": "month"}],
            }
        },
        "slo": {"ttft_s": 0.25},
    }
    read = tomllib.loads(toml_text(config))
    assert read == {**config, "server": {"port": 1}}
    governor = msgspec.convert(read["governor"], GovernorConfig)
    tenant = msgspec.convert(read["tenants"]["a b"], TenantConfig)
    assert governor.static.limit == 4
    assert tenant.budgets[0].amount == 5.0


@pytest.mark.parametrize(
    ("ends", "sigma_over_mean"),
    [
        pytest.param([0.5, 1.5, 2.5, 3.5], 0.0, id="one in each bin"),
        pytest.param([0.1, 0.2, 0.3, 0.4], 3**0.5, id="all in one bin of four"),
        pytest.param([0.5, 0.6, 1.5, 1.6, 4.2, -1.0], 1.0, id="what is outside does not count"),
        pytest.param([9.0], None, id="none"),
    ],
)
def test_jitter_is_sigma_over_mean_of_the_counts(
    ends: list[float], sigma_over_mean: float | None
) -> None:
    assert jitter(ends, 0.0, 4.0, 1.0) == (
        None if sigma_over_mean is None else pytest.approx(sigma_over_mean)
    )


def test_work_is_weighed_by_the_step_model() -> None:
    model = MODELS["linear"]
    assert work_done_s([100, 10], model) == pytest.approx(100 * 1e-4 + 10 * 1e-3)
    before = {"a": [100, 0]}
    after = {"a": [400, 30], "b": [0, 20]}
    assert share_ratio(before, after, ["a", "b"], model) == pytest.approx(3.0)
    assert share_ratio(before, {"a": [200, 0]}, ["a", "b"], model) == float("inf")


def test_a_burst_spans_from_its_first_request_to_its_last_answer() -> None:
    calls = [Call(0.5, b"", 1, 1, end_s=1.0), Call(1.0, b"", 1, 1, end_s=3.0)]
    assert span_s([*calls, Call(0.7, b"", 1, 1)]) == 2.5


def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *parts: Part | Exception) -> Bench:
    """A run whose parts give what they are told."""
    made = Bench(Surroundings(tmp_path, Output(quiet=True), quick=True))
    for letter, part in zip("EG", parts, strict=False):

        def measure(_: Surroundings, part: Part | Exception = part) -> Part:
            if isinstance(part, Exception):
                raise part
            return part

        chapter = CHAPTERS[letter]
        monkeypatch.setitem(CHAPTERS, letter, type(chapter)(chapter.name, measure, watched=False))
        made.run(letter)
    return made


def test_the_run_passes_where_all_its_parts_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = bench(monkeypatch, tmp_path, Part({"x": 2}, (Bar("x", 1),)), Part({"y": 1}))
    assert made.verdict().exit_code == PASSED
    assert made.figures == {"x": 2, "y": 1}
    assert made.words == {"E": "passed", "G": "passed"}


def test_one_part_that_misses_its_bar_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = bench(monkeypatch, tmp_path, Part({"x": 2}, (Bar("x", 1),)), Part({}, (), ["wrong"]))
    assert made.verdict().exit_code == FAILED
    assert made.words == {"E": "passed", "G": "failed"}


def test_a_part_that_cannot_be_measured_leaves_the_others_their_verdict(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = bench(monkeypatch, tmp_path, NotReadyError("no engine"), Part({"y": 1}))
    assert made.verdict().exit_code == NO_VERDICT
    assert made.words == {"E": "no verdict", "G": "passed"}


def test_late_load_clients_are_doubts() -> None:
    part = Part()
    part.note_lag("a", 0.001)
    part.note_lag("b", 0.5)
    assert part.doubts == ["b: the load client was 500 ms late"]


def test_a_part_that_does_not_exist_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--parts", "A,X"])
    assert left.value.code == 2
    assert "'X'" in capsys.readouterr().err


def test_parts_run_in_their_order_whatever_the_command_line_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[Any] = []
    monkeypatch.setattr(Bench, "run", lambda _self, letter: ran.append(letter))
    monkeypatch.setattr("benchmarks.governor.exit_on_signals", lambda: None)
    monkeypatch.setattr("benchmarks.governor.raise_file_limit", lambda _wanted: 0)
    monkeypatch.setattr("benchmarks.governor.pinned", lambda _core: nullcontext())
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: {0, 1})
    code = main(["--parts", "g,B", "--json"])
    assert (code, ran) == (PASSED, ["B", "G"])
    assert json.loads(capsys.readouterr().out)["verdict"] == "passed"
