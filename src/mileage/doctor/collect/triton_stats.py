"""Triton's statistics in JSON (`/v2/models/stats`), as the series of its metrics page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from mileage.doctor.collect.setting_values import as_number
from mileage.measure.exposition import Exposition, Sample
from mileage.measure.metrics_page import Page

__all__ = ["stats_models", "triton_stats_page"]

_NS_PER_US: Final = 1_000.0
_SERIES: Final[tuple[tuple[str, tuple[str, ...], float], ...]] = (
    ("nv_inference_exec_count", ("execution_count",), 1.0),
    ("nv_inference_count", ("inference_count",), 1.0),
    ("nv_inference_request_success", ("inference_stats", "success", "count"), 1.0),
    ("nv_inference_request_failure", ("inference_stats", "fail", "count"), 1.0),
    ("nv_inference_queue_duration_us", ("inference_stats", "queue", "ns"), _NS_PER_US),
)
"""Series of the metrics page, its path in the JSON, and what to divide by."""


def triton_stats_page(body: bytes) -> Page | None:
    """The page; None where the body is no such JSON. Never raises."""
    models = _models(body)
    if models is None:
        return None
    return Page(Exposition(samples=tuple(_samples(models)), helps={}))


def stats_models(body: bytes) -> list[str]:
    """Names of the models that it tells of."""
    names = (model.get("name") for model in _models(body) or [])
    return sorted({name for name in names if isinstance(name, str)})


def _samples(models: list[Mapping[str, Any]]) -> Iterator[Sample]:
    for model in models:
        labels = {"model": str(model.get("name", "")), "version": str(model.get("version", ""))}
        for name, path, divisor in _SERIES:
            value: Any = model
            for key in path:
                value = value.get(key) if isinstance(value, Mapping) else None
            number = as_number(value)
            if number is not None:
                yield Sample(name, labels, number / divisor)


def _models(body: bytes) -> list[Mapping[str, Any]] | None:
    try:
        decoded = msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    models = decoded.get("model_stats") if isinstance(decoded, dict) else None
    if not isinstance(models, list):
        return None
    return [model for model in models if isinstance(model, Mapping)]
