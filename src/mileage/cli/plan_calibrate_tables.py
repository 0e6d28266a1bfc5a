"""What `mileage plan calibrate` shows to people."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from rich.table import Table
from rich.text import Text

from mileage.cli.calibration_file import CalibrationFile
from mileage.cli.plan_calibrate_source import Recorded
from mileage.cli.simulate_format import percent
from mileage.cli.terminal_text import safe_text
from mileage.cli.wide_console import wide_console
from mileage.costmodel.calibration import Calibration
from mileage.planner.calibrate import Calibrated

__all__ = ["show_calibration"]

_KINDS: Final = {"steps": "single steps", "answers": "answers' mean steps"}


def show_calibration(
    path: Path, recorded: Recorded, written: CalibrationFile, found: Calibrated
) -> None:
    """What it was learned from, the multiples, and the errors without them and with them."""
    console = wide_console()
    told = f"{written.model} on {written.gpu}, {written.engine} ({recorded.replica})"
    console.print(Text.assemble(("Engine        ", "bold"), safe_text(told)))
    of = f"{found.calibration.samples:,} {_KINDS[found.kind]}"
    if recorded.samples is None:
        of += f" of {len(recorded.served):,} answers"
    console.print(Text.assemble(("Learned from  ", "bold"), of))
    console.print()
    console.print(_multiples(found.calibration))
    console.print()
    console.print(_errors(found))
    if (interval := found.calibration.interval) is not None:
        low, high = interval
        console.print(
            f"four of five later steps took {low:.2f} to {high:.2f} times what it then says",
            style="dim",
        )
    console.print()
    console.print(Text(_verdict(found.calibration), style="bold"))
    if found.calibration.at_bound:
        told = "so far from the model it is another card, engine or layout than was told: "
        console.print(Text(told + ", ".join(found.calibration.at_bound), style="bold yellow"))
    console.print(f"wrote {path}", markup=False)


def _multiples(calibration: Calibration) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column("")
    table.add_column("", justify="right")
    for name, ratio in (
        ("decoding", calibration.decode_ratio),
        ("prompts", calibration.prefill_ratio),
        ("reading the KV cache", calibration.kv_ratio),
    ):
        table.add_row(name, f"{ratio:.3f} times the model's")
    return table


def _errors(found: Calibrated) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("median error of")
    for name in ("before", "after"):
        table.add_column(name, justify="right")
    calibration, before, after = found.calibration, found.before, found.after
    rows = [("a step", calibration.error_before_ratio, calibration.error_after_ratio)]
    if before is not None:
        rows += [
            ("TTFT", before.ttft_ratio, None if after is None else after.ttft_ratio),
            ("ITL, a request's mean", before.itl_ratio, None if after is None else after.itl_ratio),
        ]
    for name, *errors in rows:
        table.add_row(name, *("-" if error is None else percent(error) for error in errors))
    return table


def _verdict(calibration: Calibration) -> str:
    before, after = calibration.error_before_ratio, calibration.error_after_ratio
    if before is None or after is None or after >= before:
        return "the model is as good without: later steps were not told better"
    return f"the median error of a step falls from {percent(before)} to {percent(after)}"
