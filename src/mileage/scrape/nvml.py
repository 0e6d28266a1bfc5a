"""nvidia-ml-py: the module where it is installed, and its errors as ours."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

from mileage.core.errors import EngineError

__all__ = ["load_nvml", "named_errors"]

_SOURCE = "nvml"


@contextlib.contextmanager
def named_errors(nvml: Any) -> Iterator[None]:
    """Make NVML's errors EngineError."""
    try:
        yield
    except nvml.NVMLError as error:
        raise EngineError(_SOURCE, str(error)) from error


def load_nvml() -> Any:
    """The module nvidia-ml-py. Raises EngineError where it is missing or too old."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError as error:
        message = "nvidia-ml-py is not installed: pip install 'mileage[gpu]'"
        raise EngineError(_SOURCE, message) from error
    if not hasattr(nvml, "nvmlGpmMetricsGet"):
        raise EngineError(_SOURCE, "nvidia-ml-py is too old: 12.535 or newer is needed")
    return nvml
