"""Calibration: steps that are slower than the model expects teach by how much, and which part."""

from __future__ import annotations

import random

import msgspec
import pytest

from mileage.core.errors import ConfigError
from mileage.costmodel.calibration import Calibration, calibrated, learn_calibration
from mileage.costmodel.fitted import StepSample
from mileage.costmodel.step_table import StepLine, StepTable

REQUESTS, TOKENS = 64, 1024
TABLE = StepTable(
    lines=(
        StepLine(
            decode_s=tuple(0.010 + 0.0001 * n for n in range(REQUESTS + 1)),
            mixed_s=tuple(0.010 + 0.00005 * n for n in range(TOKENS + 1)),
            kv_s=2e-7,
            pair_s=1e-9,
        ),
    )
)
REAL = Calibration(decode_ratio=1.3, prefill_ratio=0.8, kv_ratio=1.5)


def steps(
    table: StepTable, count: int, *, prompts: bool = True, noise: float = 0.0, seed: int = 0
) -> list[StepSample]:
    """What an engine of this table is seen to do."""
    draw = random.Random(seed)
    found = []
    for _ in range(count):
        running = draw.randrange(1, REQUESTS + 1)
        kv = draw.randrange(running, running * 2000)
        prefill = draw.choice([0, draw.randrange(1, 900)]) if prompts else 0
        pairs = prefill * (prefill + 1) / 2
        step_s = table.step_s(running, kv, prefill, pairs) * draw.lognormvariate(0, noise)
        found.append(StepSample(running, kv, prefill, step_s))
    return found


def test_the_parts_that_differ_are_found() -> None:
    found = learn_calibration(steps(calibrated(TABLE, REAL), 400), TABLE)
    assert found.decode_ratio == pytest.approx(1.3, rel=0.02)
    assert found.prefill_ratio == pytest.approx(0.8, rel=0.02)
    assert found.kv_ratio == pytest.approx(1.5, rel=0.03)
    assert found.error_before_ratio is not None
    assert found.error_before_ratio > 0.15
    assert found.error_after_ratio is not None
    assert found.error_after_ratio < 0.01
    assert found.samples == 400


def test_noise_and_stalls_move_little() -> None:
    samples = steps(calibrated(TABLE, REAL), 600, noise=0.05)
    stalled = [
        each._replace(step_s=each.step_s * 20) if number % 25 == 0 else each
        for number, each in enumerate(samples)
    ]
    found = learn_calibration(stalled, TABLE)
    assert found.decode_ratio == pytest.approx(1.3, rel=0.05)
    assert found.prefill_ratio == pytest.approx(0.8, rel=0.05)
    assert found.interval is not None
    low, high = found.interval
    assert 0.9 < low < 1.0 < high < 1.2


def test_of_two_lines_the_one_that_binds_is_learned_from() -> None:
    flat = StepLine(decode_s=(0.02,) * 65, mixed_s=(0.02,) * 1025, kv_s=0.0, pair_s=0.0)
    table = StepTable(lines=(*TABLE.lines, flat))
    found = learn_calibration(steps(calibrated(table, REAL), 600), table)
    assert found.error_after_ratio is not None
    assert found.error_after_ratio < 0.02
    assert found.decode_ratio == pytest.approx(1.3, rel=0.03)


def test_what_was_not_seen_stays_as_expected() -> None:
    found = learn_calibration(steps(calibrated(TABLE, REAL), 200, prompts=False), TABLE)
    assert found.prefill_ratio == 1.0
    assert found.decode_ratio == pytest.approx(1.3, rel=0.03)


def test_an_engine_as_expected_changes_nothing() -> None:
    found = learn_calibration(steps(TABLE, 200), TABLE)
    assert (found.decode_ratio, found.prefill_ratio, found.kv_ratio) == (1.0, 1.0, 1.0)
    assert found.error_after_ratio == found.error_before_ratio


def test_an_engine_that_became_another_is_not_learned_from_its_first_half() -> None:
    slow = steps(calibrated(TABLE, Calibration(decode_ratio=2.0)), 100)
    found = learn_calibration(slow + steps(TABLE, 100, seed=1), TABLE)
    assert (found.decode_ratio, found.prefill_ratio, found.kv_ratio) == (1.0, 1.0, 1.0)


def test_a_model_is_not_stretched_without_end() -> None:
    table = calibrated(TABLE, Calibration(decode_ratio=3.0, prefill_ratio=3.0, kv_ratio=3.0))
    found = learn_calibration(steps(calibrated(table, REAL), 200), TABLE)
    assert max(found.decode_ratio, found.prefill_ratio, found.kv_ratio) == 3.0
    assert "decode_ratio" in found.at_bound
    assert REAL.at_bound == ()
    assert Calibration.from_json(found.to_json()) == found


@pytest.mark.parametrize(
    "spoiled",
    [
        pytest.param(StepSample(65, 10, 0, 0.01), id="more requests than the table has"),
        pytest.param(StepSample(4, 10, 5000, 0.01), id="more tokens than a step may have"),
        pytest.param(StepSample(4, 10, 0, 0.0), id="no time at all"),
        pytest.param(StepSample(4, float("nan"), 0, 0.01), id="not a number"),
    ],
)
def test_steps_that_cannot_be_are_left_out(spoiled: StepSample) -> None:
    with pytest.raises(ConfigError, match="at least 32 steps"):
        learn_calibration([*steps(TABLE, 31), spoiled], TABLE)


def test_it_is_kept_as_json() -> None:
    found = learn_calibration(steps(calibrated(TABLE, REAL), 100), TABLE)
    assert Calibration.from_json(found.to_json()) == found
    for wrong in (b"{", b'{"decode_ratio": 7}', b'{"speed": 1}'):
        with pytest.raises(ConfigError):
            Calibration.from_json(wrong)


def test_a_calibrated_table_multiplies_each_part() -> None:
    table = calibrated(TABLE, REAL)
    line, of = table.lines[0], TABLE.lines[0]
    assert table.step_s(8, 0) == pytest.approx(1.3 * TABLE.step_s(8, 0))
    assert table.step_s(0, 0, 100, 5050) == pytest.approx(0.8 * TABLE.step_s(0, 0, 100, 5050))
    assert line.kv_s == 1.5 * of.kv_s
    assert calibrated(TABLE, Calibration()) == msgspec.structs.replace(TABLE)
