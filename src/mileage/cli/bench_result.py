"""BenchRun: all that is known of one run, before it is told in one form or another."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from mileage.core.slo import Slo
from mileage.loadgen.run import LoadRun
from mileage.measure.call_record import CallRecord
from mileage.measure.run_figures import RunFigures, run_figures
from mileage.measure.run_series import RunSeries, run_series
from mileage.measure.server_use import ServerUse, UseSeries
from mileage.measure.steady_state import SteadyState, steady_state
from mileage.scrape.engine_check import MeanCheck
from mileage.scrape.engine_means import EngineFigure

__all__ = ["INTERRUPTED", "LIMITED", "BenchRun", "exit_code"]

LIMITED: Final = 3
"""Exit code: the generator was the limit, or too little was seen to say anything."""
INTERRUPTED: Final = 130
"""Exit code of shells for what Ctrl-C ended."""


class BenchRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of one plan against one endpoint."""

    load: LoadRun
    slo: Slo
    conditions: dict[str, Any]
    """What it was run on and with: endpoint, model, workload, options, versions."""
    use: ServerUse | None = None
    """Over the measured window; None: nobody looked."""
    use_series: UseSeries = UseSeries()
    """On time.monotonic()."""
    engine_means: dict[EngineFigure, MeanCheck] = {}
    """By the engine's own histograms, of the whole run."""
    usd_per_gpu_hour: float | None = None
    gpus: int = 1
    plan: dict[str, Any] = {}
    """Counts of what was planned that could not be sent as it was asked for."""
    error: str | None = None
    """Why there was no run, or why it ended early."""
    interrupted: bool = False
    """By its user."""

    @property
    def why_ended(self) -> str | None:
        """Why there was no run, or why it ended before its time; None: it did not."""
        return self.error or self.load.plan_error or self.load.given_up

    @property
    def has_window(self) -> bool:
        """There was a measured time."""
        return self.load.end_s > self.load.start_s

    @property
    def has_target(self) -> bool:
        """There is something to meet."""
        return self.slo.ttft_s is not None or self.slo.itl_s is not None

    @property
    def measured(self) -> list[CallRecord]:
        """The requests that figures are of."""
        start_s, end_s = self.load.start_s, self.load.end_s
        return [
            record
            for record in self.load.records
            if record.phase == "measured" and start_s <= record.scheduled_s < end_s
        ]

    def figures(self) -> RunFigures:
        """Of the measured window; of a run without one, all that was sent."""
        if self.has_window:
            start_s, end_s = self.load.start_s, self.load.end_s
        else:
            start_s, end_s = 0.0, max(self.load.elapsed_s, 1e-9)
        return run_figures(self.load.records, start_s=start_s, end_s=end_s, slo=self.slo)

    def steady(self) -> SteadyState | None:
        """Whether the window was steady; None without one."""
        if not self.has_window:
            return None
        start_s, end_s = self.load.start_s, self.load.end_s
        return steady_state(self.load.records, start_s=start_s, end_s=end_s)

    def series(self) -> RunSeries:
        """The whole run, second by second."""
        end_s = max(self.load.elapsed_s, self.load.end_s, 1e-3)
        return run_series(self.load.records, start_s=0.0, end_s=end_s)


def exit_code(run: BenchRun, figures: RunFigures) -> int:
    """What the command ends with: 1 a failure, 3 the generator was the limit or nothing was seen,
    130 interrupted, else 0."""
    if run.why_ended is not None:
        return 1
    if run.interrupted:
        return INTERRUPTED
    if figures.requests and not figures.requests_ok and figures.requests_failed:
        return 1
    if run.load.generator.limited or not figures.requests:
        return LIMITED
    return 0
