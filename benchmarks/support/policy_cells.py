"""Cells of the policies' benchmark: a model on its GPUs under a trace, and what it should meet."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path

from msgspec.structs import replace

from mileage.core.slo import Slo
from mileage.costmodel.catalogue import architecture, gpu
from mileage.costmodel.deployment import Deployment
from mileage.costmodel.precision import Precision
from mileage.costmodel.step_table import StepTable
from mileage.workload.read_options import ReadOptions
from mileage.workload.source import read_trace
from mileage.workload.trace_request import TraceRequest
from mileage.workload.transforms import mix

__all__ = ["CELLS", "PAIRINGS", "SLO", "Cell", "Pairing", "data_directory", "windows_of"]

SLO = Slo(ttft_s=2.0, itl_s=0.06, ttft_unloaded_ratio=3.0)
_FILES = {
    "azure": "traces/azure_conv_2023.csv.gz",
    "mooncake": "traces/mooncake_conversation.jsonl.gz",
}
_MIX_SHARES = {"azure": 0.8, "mooncake": 0.2}
_RUNNING_MAX = 1024
_STEP_TOKENS_MAX = 8192


def data_directory() -> Path | None:
    """Where the traces are; None: nowhere."""
    value = os.environ.get("MILEAGE_DATA_DIR")
    return Path(value) if value and Path(value).is_dir() else None


@dataclass(frozen=True, slots=True)
class Pairing:
    """A model on GPUs, and the limits that vLLM gives an engine there by default."""

    name: str
    model: str
    gpu: str
    gpus: int
    weights: Precision
    step_tokens: int
    running: int

    @property
    def deployment(self) -> Deployment:
        """What memory and step times follow from."""
        return Deployment(
            model=architecture(self.model),
            gpu=gpu(self.gpu),
            tensor_parallel=self.gpus,
            weights=self.weights,
        )

    def kv_blocks(self, step_tokens: int, running: int) -> int:
        """Blocks of 16 tokens of an engine with these limits."""
        return self.deployment.kv_blocks(16, step_tokens, running)


PAIRINGS = {
    "A10": Pairing("A10", "llama-3.1-8b", "a10", 1, "bf16", 2048, 256),
    "A100": Pairing("A100", "qwen3-32b", "a100-80gb", 1, "bf16", 2048, 256),
    "H100": Pairing("H100", "llama-3.1-70b", "h100-sxm5-80gb", 4, "fp8", 8192, 1024),
    "H20": Pairing("H20", "deepseek-v3", "h20", 8, "fp8", 8192, 1024),
}


@lru_cache(maxsize=8)
def table_of(pairing: Pairing) -> StepTable:
    """The step times of a pairing, for every setting of its engine."""
    return pairing.deployment.step_table(_RUNNING_MAX, _STEP_TOKENS_MAX + _RUNNING_MAX)


@dataclass(frozen=True, slots=True)
class Cell:
    """One line of the comparison."""

    pairing: Pairing
    trace: str

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.trace} on {self.pairing.name}"

    @property
    def table(self) -> StepTable:
        """How long its steps take."""
        return table_of(self.pairing)

    def unloaded_s(self, prompt_tokens: int, cached_tokens: int) -> float:
        """Seconds to the first token of a prompt that is alone in the engine as vLLM sets it up."""
        at, total_s, table = cached_tokens, 0.0, self.table
        while at < prompt_tokens:
            chunk = min(self.pairing.step_tokens, prompt_tokens - at)
            total_s += table.step_s(0, 0, chunk, chunk * at + chunk * (chunk + 1) / 2)
            at += chunk
        return total_s


CELLS = (
    *(Cell(pairing, "azure") for pairing in PAIRINGS.values()),
    Cell(PAIRINGS["H100"], "mooncake"),
    Cell(PAIRINGS["H100"], "mix"),
)


def windows_of(trace: str, starts: Sequence[float], count: int) -> list[list[TraceRequest]]:
    """Windows of `count` requests of a trace that begin at these shares of it.

    Each has a mean rate of one request per second: a run divides its times by the rate.
    """
    if trace != "mix":
        whole = _whole(trace)
        return [_window(whole, start, count) for start in starts]
    parts = []
    for start in starts:
        each = []
        for name, share in _MIX_SHARES.items():
            part = _window(_whole(name), start, round(share * count))
            each.append([replace(r, arrived_s=r.arrived_s / share) for r in part])
        parts.append(list(mix(each)))
    return parts


def _window(whole: Sequence[TraceRequest], start: float, count: int) -> list[TraceRequest]:
    first = int(start * len(whole))
    part = whole[first : first + count]
    begin_s = part[0].arrived_s
    pace = len(part) / (part[-1].arrived_s - begin_s)
    return [replace(r, arrived_s=(r.arrived_s - begin_s) * pace) for r in part]


@lru_cache(maxsize=2)
def _whole(trace: str) -> tuple[TraceRequest, ...]:
    directory = data_directory()
    assert directory is not None
    path = directory / _FILES[trace]
    with gzip.open(path, "rb") as file:
        options = ReadOptions(spread="even" if trace == "mooncake" else "none")
        return tuple(read_trace(file, path=str(path), options=options))


def at_rate(window: Sequence[TraceRequest], rate_rps: float) -> Iterator[TraceRequest]:
    """The window at a mean rate of so many requests per second."""
    return (replace(r, arrived_s=r.arrived_s / rate_rps) for r in islice(window, None))
