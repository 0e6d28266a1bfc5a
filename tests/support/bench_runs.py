"""Runs of mileage bench as if they had been measured, with figures that are known by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mileage.cli.bench_document import bench_document
from mileage.cli.bench_result import BenchRun
from mileage.core.slo import Slo
from mileage.loadgen.generator_use import GeneratorUse
from mileage.loadgen.run import LoadRun
from mileage.measure.call_record import CallRecord
from mileage.measure.server_use import ServerUse
from tests.support.call_records import answer, streamed

__all__ = [
    "LIMITED_USE",
    "SEEN_USE",
    "bench_run",
    "document_of",
    "failed",
    "load_run",
    "stream",
    "streams",
]

LIMITED_USE = GeneratorUse(lag_p99_s=0.3, cpu_ratio=0.97, limited=True, reason="it was late")
SEEN_USE = ServerUse(utilisation_ratio=0.6, memory_bytes=2**30, energy_j=900.0, samples=9)


def stream(at_s: float, *, ttft_s: float = 0.1, tokens: int = 3, **others: Any) -> CallRecord:
    """An answer of so many tokens, 10 ms apart."""
    times = [at_s + ttft_s + k / 100 for k in range(tokens)]
    usual = {"scheduled_s": at_s, "taken_s": at_s, "sent_s": at_s, "output_tokens": tokens}
    return streamed(times, **{**usual, **others})


def streams(count: int = 100, *, duration_s: float = 9.0) -> list[CallRecord]:
    """Evenly over the time. The i-th, from 1, has its first token after i ms, and three tokens. All
    have come before 10 s, where the window of `load_run` ends."""
    step_s = duration_s / count
    return [stream(i * step_s, ttft_s=(i + 1) / 1000, index=i) for i in range(count)]


def failed(at_s: float, outcome: str, error: str | None = None, **others: Any) -> CallRecord:
    """A request that got no answer to be used."""
    return answer(at_s, at_s + 0.01, outcome=outcome, error=error, stream=True, **others)


def load_run(
    records: Sequence[CallRecord],
    *,
    start_s: float = 0.0,
    end_s: float = 10.0,
    generator: GeneratorUse | None = None,
    plan_error: str | None = None,
    given_up: str | None = None,
) -> LoadRun:
    """What the load generator gave back."""
    return LoadRun(
        records=list(records),
        generator=generator or GeneratorUse(lag_p99_s=0.001, cpu_ratio=0.2),
        started_at_utc="2026-01-01T00:00:00.000+00:00",
        zero_monotonic_s=1000.0,
        start_s=start_s,
        end_s=end_s,
        elapsed_s=end_s + 0.5,
        plan_error=plan_error,
        given_up=given_up,
    )


def bench_run(load: LoadRun, *, slo: Slo | None = None, **others: Any) -> BenchRun:
    """The run that it belongs to."""
    conditions = {
        "url": "http://host:8000",
        "model": "toy",
        "workload": {"name": "10/s poisson"},
        "load": {"mode": "open", "warmup_s": 0.0},
        "server": {"kind": "vllm", "version": "1.2.3"},
    }
    return BenchRun(load=load, slo=slo or Slo(), **{"conditions": conditions, **others})


def document_of(run: BenchRun, **changes: Any) -> dict[str, Any]:
    """What would be printed of it, with these keys instead of its own."""
    return {**bench_document(run, run.figures()), **changes}
