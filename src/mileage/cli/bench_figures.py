"""The figures that runs are told and compared by: where a document has them, and their names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from mileage.cli.bench_format import count, energy, latency, memory, percent, rate, usd

__all__ = ["FIGURES", "LATENCIES", "QUANTILES", "Figure", "value_at"]

QUANTILES: Final = ("p50", "p90", "p95", "p99", "p999", "max")

LATENCIES: Final = (
    ("ttft_s", "TTFT"),
    ("itl_s", "ITL"),
    ("itl_request_p99_s", "  request's p99"),
    ("tpot_s", "TPOT"),
    ("e2e_s", "E2E"),
)
"""Rows of a table of quantiles."""


class Figure(NamedTuple):
    """One figure. `key`: where a document has it; `better`: 1 where more is, -1 where less is."""

    key: str
    name: str
    text: Callable[[float], str]
    better: int = 0

    def of(self, document: Mapping[str, Any]) -> float | None:
        """Its value; None where there is none."""
        return value_at(document, self.key)

    def shown(self, document: Mapping[str, Any]) -> str:
        """Its value as text; - where there is none."""
        value = self.of(document)
        return "-" if value is None else self.text(value)


FIGURES: Final = (
    Figure("requests", "requests", count),
    Figure("requests_ok", "  answered well", count),
    Figure("requests_per_s", "answers", rate, 1),
    Figure("goodput_rps", "  that met their targets", rate, 1),
    Figure("slo_attainment_ratio", "met their targets", percent, 1),
    Figure("output_tokens_per_s", "output tokens", rate, 1),
    Figure("prompt_tokens_per_s", "prompt tokens", rate, 1),
    Figure("tokens_per_event", "tokens per event", lambda value: f"{value:.3g}"),
    Figure("cached_tokens_ratio", "prompt tokens from the prefix cache", percent, 1),
    Figure("utilisation_ratio", "utilisation of the server", percent),
    Figure("memory_bytes", "memory of the server, highest", memory, -1),
    Figure("energy_j", "energy of the server", energy, -1),
    Figure("energy_j_per_output_token", "  per output token", energy, -1),
    Figure("usd_per_hour", "cost per hour", usd, -1),
    Figure("usd_per_mtok", "cost per million output tokens", usd, -1),
    Figure("generator.lag_p99_s", "generator: lag p99", latency, -1),
    Figure("generator.cpu_ratio", "generator: CPU of its thread", percent, -1),
)
"""Those beside the quantiles of latencies."""


def value_at(document: Mapping[str, Any], key: str) -> float | None:
    """The number at `a.b.c`; None where it, or what it is part of, is not there."""
    value: Any = document
    for name in key.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)
