"""What is made of claims: how rows are read, known and judged, and the page that tells it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import claims
from benchmarks.support.claim_fleet_rows import elasticity
from benchmarks.support.claim_lab import Arm, Lab, ratio_of, value
from benchmarks.support.claim_memory_rows import adapter_parameters
from benchmarks.support.claim_page import Judged, page
from benchmarks.support.claim_row import Claim, Gain, claimed_of, read_claims, row_test
from benchmarks.support.claim_tests import TESTS
from benchmarks.support.claim_verdict import Word, judge, row_word
from mileage.core.errors import ConfigError

HEADER = "technique,claimed,conditions,figure\n"
KV_ROW = "INT8 KV cache against FP16,2.0 -> 1.0 GB (-50 %),7B,memory_ratio\n"


def read(*rows: str) -> list[Claim]:
    return read_claims((HEADER + "".join(rows)).splitlines())


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        pytest.param("142 -> 98 ms; P99 17 -> 13 MB", (142, 98, 17, 13), id="a name's digits stay"),
        pytest.param("36 +- 9 %", (36, 9), id="a spread is a number of its own"),
        pytest.param("about -65 % / -42 %", (-65, -42), id="a fall keeps its sign"),
        pytest.param("1.24 -> 0.87 at batch 8", (1.24, 0.87, 8), id="decimals"),
        pytest.param("FP8 to INT4: 3", (3,), id="formats are names"),
    ],
)
def test_numbers_of_a_claim(text: str, numbers: tuple[float, ...]) -> None:
    assert read(f"x,{text},y,z\n")[0].numbers == numbers


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        pytest.param("a,b\n", "line 2: expected 4 columns", id="a row that is cut"),
        pytest.param("a,nothing,c,d\n", "line 2: no figure is claimed", id="no figure"),
    ],
)
def test_a_broken_row_is_told_with_its_line(rows: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        read(rows)


def test_a_file_with_other_columns_is_refused() -> None:
    with pytest.raises(ValueError, match="line 1"):
        read_claims(["a,b\n"])


@pytest.mark.parametrize(
    ("claimed", "tested", "word"),
    [
        pytest.param(2.0, Gain(1.6, ""), "reproduced", id="within a quarter"),
        pytest.param(2.0, Gain(9.0, ""), "reproduced", id="more than claimed"),
        pytest.param(0.5, Gain(0.2, ""), "reproduced", id="less is more where it should fall"),
        pytest.param(4.0, Gain(2.2, ""), "partly", id="half of the gain's logarithm"),
        pytest.param(4.0, Gain(1.9, ""), "refuted", id="less than half of it"),
        pytest.param(0.25, Gain(1.2, ""), "refuted", id="the other way"),
        pytest.param(4.0, Gain(0.0, ""), "refuted", id="nothing is left"),
        pytest.param(4.0, Gain(2.0, "", 1.5, 3.1), "partly", id="only its interval meets it"),
        pytest.param(
            0.3,
            Gain(0.3, "", loads=(("light", Gain(0.3, "")), ("full", Gain(0.01, "")))),
            "reproduced",
            id="at every load",
        ),
        pytest.param(
            0.3,
            Gain(0.3, "", loads=(("light", Gain(0.9, "")), ("full", Gain(0.3, "")))),
            "depends on load",
            id="at one load, and not at another",
        ),
        pytest.param(2.0, None, "untestable here", id="nobody can tell"),
        pytest.param(1.0, Gain(1.4, ""), "refuted", id="no gain was claimed, and there is one"),
    ],
)
def test_judging_a_gain(claimed: float, tested: Gain | None, word: Word) -> None:
    assert judge(claimed, tested) == word


@pytest.mark.parametrize(
    ("ours", "word"),
    [
        pytest.param(110.0, "reproduced", id="near"),
        pytest.param(190.0, "partly", id="within a factor of two"),
        pytest.param(900.0, "refuted", id="more is not better where a value is claimed"),
    ],
)
def test_judging_a_value(ours: float, word: Word) -> None:
    assert judge(100.0, Gain(ours, ""), absolute=True) == word


@pytest.mark.parametrize(
    ("words", "row"),
    [
        pytest.param(["reproduced", "untestable here"], "reproduced", id="the tested ones count"),
        pytest.param(["reproduced", "refuted"], "partly", id="they differ"),
        pytest.param(["refuted", "refuted"], "refuted", id="they agree"),
        pytest.param(["untestable here"], "untestable here", id="none was tested"),
    ],
)
def test_a_row_is_what_its_figures_are(words: list[Word], row: Word) -> None:
    assert row_word(words) == row


def test_a_row_is_known_by_its_words() -> None:
    test = row_test(read(KV_ROW)[0], TESTS.values())
    assert test is not None
    assert test.key == "int8_kv"
    assert claimed_of(read(KV_ROW)[0], test) == {"memory_ratio": 0.5}


def test_a_row_that_two_tests_know_is_refused() -> None:
    twice = [TESTS["int8_kv"], TESTS["int8_kv"]]
    with pytest.raises(ValueError, match="more than one"):
        row_test(read(KV_ROW)[0], twice)


def test_a_row_with_other_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match="line 2"):
        claimed_of(Claim("x", (1.0,), 2), TESTS["int8_kv"])


def test_a_row_without_a_run_says_what_it_waits_for() -> None:
    assert [t.key for t in TESTS.values() if t.run is None and not t.awaits] == []


def test_equal_pairs_have_no_interval_but_a_ratio() -> None:
    found = ratio_of([(2.0, 1.0), (4.0, 2.0), (6.0, 3.0)])
    assert (found.low, found.ratio, found.high) == pytest.approx((0.5, 0.5, 0.5))


def test_the_interval_is_students() -> None:
    # Logarithms 0 and 2 have the mean 1, and a standard error of 1.
    found = ratio_of([(1.0, 1.0), (1.0, 2.718281828459045**2)])
    assert found.high / found.ratio == pytest.approx(2.718281828459045**12.706, rel=1e-3)


def test_the_lab_runs_a_command_once_for_each_seed() -> None:
    words = ("simulate", "--trace", "synthetic:rate=5,requests=5", "--policy", "off")
    arm, lab = Arm((*words, "--model", "llama-3.1-8b", "--gpu", "h100")), Lab((1, 2))
    assert lab.document(arm, 1) is lab.document(arm, 1)
    assert lab.ratio(value("requests_rps"), after=arm, before=arm).ratio == pytest.approx(1.0)


def test_a_command_that_is_wrong_is_an_error() -> None:
    with pytest.raises(ConfigError):
        Lab().document(Arm(("roofline", "--model", "llama-2-7b", "--gpu", "none")))


def test_an_adapter_has_rank_times_in_and_out_of_each_layer() -> None:
    # 32 layers; q, k, v and o of 4,096, and three of 4,096 x 11,008
    assert adapter_parameters("llama-2-7b", 1) == 32 * (4 * 8192 + 3 * 15104)


def test_elasticity_of_a_hyperbola_is_one() -> None:
    assert elasticity([(1.0, 4.0), (2.0, 2.0), (4.0, 1.0)]) == pytest.approx(1.0)


def test_without_a_file_there_is_no_verdict(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MILEAGE_DATA_DIR", str(tmp_path / "data"))
    assert claims.main(["--json"]) == 3
    assert "claims.csv" in json.loads(capsys.readouterr().out)["reasons"][0]


def test_a_run_judges_each_row_and_writes_the_page(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").mkdir()
    rows = KV_ROW + "phlogiston against none,1 -> 2,air,heat_ratio\n"
    (tmp_path / "claims.csv").write_text(HEADER + rows)
    monkeypatch.setenv("MILEAGE_DATA_DIR", str(tmp_path / "data"))
    assert claims.main(["--json", "--page", str(tmp_path / "page.md")]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["claims"]["int8_kv"]["verdict"] == "reproduced"
    assert found["claims"]["line 3"]["verdict"] == "untestable here"
    assert "line 3: no test knows this row" in found["reasons"][0]
    written = (tmp_path / "page.md").read_text()
    assert "mileage roofline --model llama-2-7b" in written
    assert "phlogiston" not in written


def test_a_test_that_fails_leaves_its_row_untested(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(lab: Lab) -> None:
        raise RuntimeError("out of order")

    broken = claims.judged.__globals__["TESTS"]
    monkeypatch.setitem(broken, "int8_kv", _with_run(fail))
    found = claims.judged(read(KV_ROW)[0], Lab())
    assert (found.word, found.problem) == ("untestable here", "The test failed: out of order")


def _with_run(run: object) -> object:
    return replace(TESTS["int8_kv"], run=run)  # type: ignore[arg-type]


def test_the_page_names_what_a_row_waits_for() -> None:
    test = TESTS["metering"]
    row = Judged(
        test.key, test, {"error_ratio": 0.24}, None, {"error_ratio": "untestable here"},
        "untestable here",
    )  # fmt: skip
    text = page([row])
    assert "`mileage cost`" in text
    assert "| `error_ratio` | 0.24 | - | untestable here |" in text
