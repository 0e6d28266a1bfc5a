"""The benchmark of step times: which rows it uses, and that it finds what rows were made from."""

from __future__ import annotations

import csv
from pathlib import Path

import msgspec
import numpy as np
import pytest

from benchmarks.support.measured import Measured, read
from benchmarks.support.steptime_fit import Predictor, fit
from benchmarks.support.steptime_judge import spread
from benchmarks.support.steptime_pairs import pair_errors
from benchmarks.support.steptime_table import TABLE, table_text
from mileage.costmodel import efficiency_table
from mileage.costmodel.efficiency import Efficiency

ROW = {
    "model": "meta-llama/Llama-3.1-70B",
    "gpu": "h100_sxm",
    "num_gpus": "4",
    "parallelism": "tp4 pp1 dp1 moe_tp4 ep1",
    "precision": "fp8",
    "engine": "vllm 0.12",
    "workload": "fixed/random agg",
    "input_len": "1024",
    "output_len": "1024",
    "batch_or_concurrency": "16",
    "ttft_mean_ms": "121",
    "tpot_mean_ms": "13.2",
    "total_tok_s": "",
    "metric_note": "n=64; vllm serve",
    "source_class": "somebody",
}


def readings(path: Path, *rows: dict[str, str]) -> tuple[list[Measured], list[str]]:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(ROW))
        writer.writeheader()
        writer.writerows({**ROW, **row} for row in rows)
    found = read(path)
    return found.rows, [why for _, why in found.left_out]


def test_a_row_says_what_ran(tmp_path: Path) -> None:
    (row,), left = readings(tmp_path / "m.csv", {})
    assert left == []
    one = row.deployment
    assert (one.model.name, one.gpu.name) == ("meta-llama/Llama-3.1-70B", "H100-SXM5-80GB")
    assert (one.tensor_parallel, one.weights, one.kv, one.engine) == (4, "fp8", "bf16", "vllm")
    assert (row.tpot_s, row.ttft_s) == (0.0132, 0.121)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        pytest.param({"ttft_mean_ms": "9000"}, "TTFT above 5 s", id="a queue"),
        pytest.param({"metric_note": "--speculative-algorithm"}, "speculatively", id="drafts"),
        pytest.param({"tpot_mean_ms": "4"}, "faster than the weights", id="too fast"),
        pytest.param({"workload": "disagg"}, "different GPUs", id="disaggregated"),
        pytest.param({"num_gpus": "8"}, "number of GPUs", id="GPUs unclear"),
        pytest.param({"metric_note": "n=16; x"}, "burst", id="all at once"),
        pytest.param({"model": "who/knows"}, "unknown model", id="model"),
        pytest.param({"batch_or_concurrency": ""}, "in flight", id="no concurrency"),
        pytest.param({"gpu": "t4"}, "does not fit", id="does not fit"),
        pytest.param({"output_len": "4"}, "fewer than 16", id="short answers"),
    ],
)
def test_rows_that_test_something_else_are_left_out(
    tmp_path: Path, change: dict[str, str], why: str
) -> None:
    rows, left = readings(tmp_path / "m.csv", change)
    assert rows == []
    assert len(left) == 1
    assert why in left[0]


def test_the_same_result_counts_once(tmp_path: Path) -> None:
    rows, left = readings(tmp_path / "m.csv", {}, {})
    assert len(rows) == 1
    assert left == ["the same result again"]


def test_the_fit_comes_closer_to_what_rows_were_made_from(tmp_path: Path) -> None:
    changes = [
        {"batch_or_concurrency": str(n), "input_len": str(i), "metric_note": "n=9999; x",
         "gpu": g, "precision": p, "tpot_mean_ms": str(20 + n), "ttft_mean_ms": str(100 + i + n)}
        for n in (1, 4, 16, 64) for i in (128, 1024, 4096)
        for g in ("h100_sxm", "h200_sxm") for p in ("fp8", "")
    ]  # fmt: skip
    rows, _ = readings(tmp_path / "m.csv", *changes)
    assert len(rows) > 20
    truth = msgspec.structs.replace(
        Efficiency(), half_memory_ratio=0.7, fp8_memory_ratio=0.6, ttft_s=0.05
    )
    made = Predictor(rows).latencies(truth)
    rows = [
        Measured(
            **{
                **{name: getattr(row, name) for name in row.__slots__},
                "tpot_s": float(made.tpot_s[i]),
                "ttft_s": float(made.ttft_s[i]),
            }
        )
        for i, row in enumerate(rows)
    ]
    predictor = Predictor(rows)
    fitted = fit(rows)
    for before, after in zip(predictor.errors(Efficiency()), predictor.errors(fitted), strict=True):
        assert np.median(np.abs(after)) < 0.9 * np.median(np.abs(before))


def test_each_class_weighs_alike_in_the_spread_of_errors() -> None:
    few, many = np.array([-1.0, 1.0]), np.zeros(1000)
    low, high = spread([few, many])
    assert low < -0.5
    assert high > 0.5


def test_the_table_in_use_was_written_by_the_benchmark() -> None:
    namespace: dict[str, object] = {}
    exec(TABLE.read_text("utf-8"), namespace)
    text = table_text(
        efficiency_table.FITTED, efficiency_table.TPOT_INTERVAL, efficiency_table.TTFT_INTERVAL
    )
    again: dict[str, object] = {}
    exec(text, again)
    for name in efficiency_table.__all__:
        assert again[name] == namespace[name]
    assert TABLE.read_text("utf-8") == text


def test_pairs_of_one_setup_share_what_both_are_off_by(tmp_path: Path) -> None:
    rows, _ = readings(
        tmp_path / "m.csv",
        {"batch_or_concurrency": "16"},
        {"batch_or_concurrency": "32", "tpot_mean_ms": "15"},
        {"batch_or_concurrency": "16", "tpot_mean_ms": "21", "precision": "bf16"},
        {"batch_or_concurrency": "64", "tpot_mean_ms": "19", "input_len": "2048"},
    )
    errors = np.array([0.3, 0.35, 0.2, 0.9])
    assert pair_errors(rows, errors, "concurrency") == pytest.approx([-0.05])
    assert pair_errors(rows, errors, "weights") == pytest.approx([0.1])
    assert pair_errors(rows, errors, "tensor_parallel") == []
    errors[1] = np.nan
    assert pair_errors(rows, errors, "concurrency") == []
