"""The page of the GPU catalogue: figures, sources and prices."""

from __future__ import annotations

from collections.abc import Iterable

from mileage.costmodel.architecture import Architecture
from mileage.costmodel.gpu import Gpu
from mileage.costmodel.price import gpu_prices, usd_per_gpu_hour

__all__ = ["render"]

_FIELDS = {
    "half_tflops": "half",
    "fp8_tflops": "FP8",
    "fp4_tflops": "FP4",
    "int8_tops": "INT8",
    "memory_gb": "memory",
    "memory_mib": "MiB",
    "bandwidth_gb_per_s": "bandwidth",
    "nvlink_gb_per_s": "links",
    "power_w": "power",
}
_HEAD = """# GPUs and models

Written from the code by `make docs`. Rates are dense, with FP32 accumulation, in TFLOPS (INT8:
TOPS); *half* is FP16 and, but for T4 and V100, BF16. *Links* are NVLink (or XGMI, HCCS), both
directions of one GPU together. A dash: the hardware lacks it, or no public figure was found. A star
marks figures that were not checked against the maker's document, or where public sources differ.

"""


def render(gpus: Iterable[Gpu], models: Iterable[Architecture]) -> str:
    """The page."""
    gpus = tuple(gpus)
    lines = [
        "| GPU | half | FP8 | FP4 | INT8 | memory GB | GB/s | links GB/s | W | USD/h |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *(_figures(gpu) for gpu in gpus),
        "",
        "USD/h is the median of the public prices on demand, listed at the end of this page.",
        "",
        "## Sources",
        "",
        *(f"- {gpu.name}: {gpu.source}{_notes(gpu)}." for gpu in gpus),
        "",
        "## Models",
        "",
        "| Model | parameters, 1e9 | of a token | layers | also called |",
        "|---|---|---|---|---|",
        *(_model(model) for model in models),
        "",
        "## Prices",
        "",
        "| GPU | offer | USD per GPU and hour | date | source |",
        "|---|---|---|---|---|",
        *(
            f"| {gpu.name} | {p.provider} | {p.usd_per_gpu_hour:g} | {p.date} | {p.source} |"
            for gpu in gpus
            for p in gpu_prices(gpu)
        ),
    ]
    return _HEAD + "\n".join(lines) + "\n"


def _figures(gpu: Gpu) -> str:
    def figure(field: str) -> str:
        value = getattr(gpu, field)
        star = "*" if field in gpu.unverified else ""
        return "-" if value is None else f"{value:g}{star}"

    fields = [field for field in _FIELDS if field != "memory_mib"]
    usd = usd_per_gpu_hour(gpu)
    price = "-" if usd is None else f"{usd:.2f}"
    return f"| {gpu.name} | {' | '.join(figure(field) for field in fields)} | {price} |"


def _notes(gpu: Gpu) -> str:
    return f" ({gpu.note})" if gpu.note else ""


def _model(model: Architecture) -> str:
    active = f"{model.active_parameters / 1e9:.3g}" if model.experts else "all"
    short = [alias for alias in model.aliases if "/" not in alias and alias == alias.lower()]
    count = f"{model.parameters / 1e9:.4g}"
    return f"| {model.name} | {count} | {active} | {model.layers} | {', '.join(short)} |"
