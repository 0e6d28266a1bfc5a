"""The policies' benchmark: how it searches, judges, and tells what cannot be compared."""

from __future__ import annotations

import json

import pytest

from benchmarks.policies import Found, figures_of, main
from benchmarks.support.policy_arms import MODEL_ARM, default_arm, policy_arm, static_arm
from benchmarks.support.policy_capacity import Capacity, Point, capacity
from benchmarks.support.policy_cells import CELLS, PAIRINGS, Cell

ARM = static_arm(512, 64)


def point_of(rate: float, attained: float = 1.0, decile: float = 1.0) -> Point:
    return Point(rate, attained, decile, 1.0, 0.0)


@pytest.mark.parametrize("edge", [0.05, 0.7, 1.0, 13.0, 200.0])
def test_the_highest_rate_that_is_kept_is_found_from_any_guess(edge: float) -> None:
    for guess in (0.1, 1.0, 30.0):
        found = capacity(
            lambda rate: point_of(rate, 1.0 if rate <= edge else 0.9), ARM, guess_rps=guess
        )
        assert edge / 1.03 <= found.rate_rps <= edge
        assert found.point is not None
        assert found.point.rate_rps == found.rate_rps


def test_what_is_not_worth_knowing_costs_one_run() -> None:
    found = capacity(lambda rate: point_of(rate, 0.5), ARM, guess_rps=1.0, least_rps=2.0)
    assert (found.rate_rps, found.points) == (0.0, 1)


def test_a_cell_that_keeps_no_rate_has_none() -> None:
    found = capacity(lambda rate: point_of(rate, 0.94), ARM, guess_rps=1.0)
    assert (found.rate_rps, found.point) == (0.0, None)


@pytest.mark.parametrize(
    ("attained", "decile", "kept"),
    [(0.95, 0.85, True), (0.949, 1.0, False), (1.0, 0.849, False)],
)
def test_both_bars_have_to_be_kept(attained: float, decile: float, kept: bool) -> None:
    assert point_of(1.0, attained, decile).kept is kept


def test_a_long_prompt_alone_takes_its_chunks() -> None:
    cell = Cell(PAIRINGS["H100"], "azure")
    one = cell.table.step_s(0, 0, 8192, 8192 * 8193 / 2)
    two = cell.table.step_s(0, 0, 1000, 1000 * 8192 + 1000 * 1001 / 2)
    assert cell.unloaded_s(9192, 0) == pytest.approx(one + two)
    assert cell.unloaded_s(9192, 8192) == pytest.approx(two)


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_every_arm_makes_an_engine_in_every_cell(cell: Cell) -> None:
    arms = (
        default_arm(cell.pairing),
        static_arm(64, 8, rejecting=True, long_prefill=32),
        policy_arm("aimd", cell.pairing, step_tokens=64),
        MODEL_ARM,
    )
    for arm in arms:
        engine = arm.replica(cell).engine
        assert engine.kv_blocks > 0
        assert (engine.prefill is not None) == (arm is MODEL_ARM)
        governed = arm.control().governor
        assert governed.mode == ("off" if arm.policy is None else "act")
        assert governed.model.engine_policies == (arm is MODEL_ARM)


def found_of(cell: Cell, static_rps: float, model_rps: float) -> Found:
    static = Capacity(ARM, static_rps, point_of(static_rps), 1)
    model = Capacity(MODEL_ARM, model_rps, point_of(model_rps, 0.96, 0.9), 1)
    names = ("aimd", "volatility", "utilisation", "tail_memory", "mixture", "model")
    return Found(
        cell=cell,
        default=static,
        default_mean=Capacity(ARM, static_rps / 2, None, 1),
        static=static,
        rejecting=Capacity(ARM, 1.25 * static_rps, None, 1),
        model=model,
        model_mean=model,
        others=dict.fromkeys(names, static),
        overload=point_of(1.5 * static_rps, 0.8),
    )


def test_figures_are_ratios_and_the_least_of_them_counts() -> None:
    azure, mooncake = CELLS[0], CELLS[4]
    figures = figures_of([found_of(azure, 1.0, 1.5), found_of(mooncake, 2.0, 6.0)])
    assert figures["min_vs_best_static"] == pytest.approx(1.5)
    assert figures["geomean_vs_best_static"] == pytest.approx(4.5**0.5)
    assert figures["min_vs_static_rejecting"] == pytest.approx(1.2)
    assert figures["long_vs_static_rejecting"] == pytest.approx(2.4)
    assert figures["overload_goodput_ratio"] == pytest.approx(1.2)
    assert figures["mean_vs_vllm_default"] == pytest.approx(3.0)
    assert figures["worst_decile_pass"] == pytest.approx(0.9)
    assert figures["zero_baseline"] == []


def test_nothing_is_divided_by_a_baseline_of_zero() -> None:
    figures = figures_of([found_of(CELLS[0], 0.0, 1.5), found_of(CELLS[1], 1.0, 1.3)])
    assert figures["min_vs_best_static"] == pytest.approx(1.3)
    assert CELLS[0].name in figures["zero_baseline"]  # type: ignore[operator]


def test_without_traces_there_is_no_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("MILEAGE_DATA_DIR", raising=False)
    assert main(["--json"]) == 3
    assert json.loads(capsys.readouterr().out)["verdict"] == "no verdict"
