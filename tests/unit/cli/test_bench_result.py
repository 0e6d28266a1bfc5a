"""What mileage bench ends with, and which requests its figures are of."""

from __future__ import annotations

import pytest

from mileage.cli.bench_result import BenchRun, exit_code
from tests.support.bench_runs import LIMITED_USE, bench_run, failed, load_run, stream, streams

GOOD = load_run(streams())
LIMITED = load_run(streams(), generator=LIMITED_USE)
ALL_FAILED = [failed(1.0, "cut")]


@pytest.mark.parametrize(
    ("run", "code"),
    [
        pytest.param(bench_run(GOOD), 0, id="all went well"),
        pytest.param(
            bench_run(load_run([*streams(), failed(1.0, "cut")])), 0, id="some requests failed"
        ),
        pytest.param(bench_run(LIMITED), 3, id="the generator was the limit"),
        pytest.param(bench_run(load_run([])), 3, id="nothing was measured"),
        pytest.param(bench_run(load_run(ALL_FAILED)), 1, id="no request was answered"),
        pytest.param(
            bench_run(load_run(ALL_FAILED, generator=LIMITED_USE)),
            1,
            id="no request was answered, and the generator was the limit besides",
        ),
        pytest.param(
            bench_run(load_run([failed(1.0, "cancelled")])), 0, id="all left on purpose: no failure"
        ),
        pytest.param(bench_run(GOOD, error="it is down"), 1, id="there was no run"),
        pytest.param(bench_run(load_run(streams(), plan_error="x")), 1, id="the plan broke off"),
        pytest.param(
            bench_run(load_run(streams(), given_up="x")), 1, id="nobody answered any more"
        ),
        pytest.param(bench_run(GOOD, interrupted=True), 130, id="its user ended it"),
        pytest.param(
            bench_run(LIMITED, interrupted=True), 130, id="its user ended it while it was limited"
        ),
    ],
)
def test_the_exit_code_says_what_became_of_it(run: BenchRun, code: int) -> None:
    assert exit_code(run, run.figures()) == code


def test_measured_are_those_due_in_the_window_up_to_and_without_its_end() -> None:
    records = [stream(at_s, index=n) for n, at_s in enumerate((1.9, 2.0, 9.9, 10.0))]
    warm = stream(3.0, phase="warmup", index=4)
    run = bench_run(load_run([*records, warm], start_s=2.0))
    assert [record.index for record in run.measured] == [1, 2]
    assert run.figures().requests == 2
