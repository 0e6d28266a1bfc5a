"""What is told of a fault inside the engine: its kind and place, never what its message says.

A message may quote what the engine works on, and that is people's prompts.
"""

from __future__ import annotations

import logging
from pathlib import Path

__all__ = ["failure_of", "log_failure"]


def failure_of(error: BaseException) -> str:
    """Its kind, and the place where it was raised: "KeyError at answers.py:93 (observe)"."""
    places = _places(error)
    return f"{type(error).__name__} at {places[-1]}" if places else type(error).__name__


def log_failure(log: logging.Logger, what: str, error: BaseException) -> None:
    """One entry: what has failed, and the way to the place."""
    log.error("mileage: %s: %s; by %s", what, failure_of(error), " > ".join(_places(error)))


def _places(error: BaseException) -> list[str]:
    found, trace = [], error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        found.append(f"{Path(code.co_filename).name}:{trace.tb_lineno} ({code.co_name})")
        trace = trace.tb_next
    return found
