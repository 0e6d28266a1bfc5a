"""What several exports of one run tell together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mileage.doctor.collect.facts_document import FactsDocument, facts_document, per_unit
from mileage.doctor.collect.kernel_weights import weighted_facts
from mileage.doctor.collect.merge_facts import overlay
from mileage.doctor.collect.profile_reading import ProfileReading

__all__ = ["profile_facts"]


def profile_facts(readings: Sequence[ProfileReading]) -> FactsDocument:
    """Facts of all of them. Timelines are of one rank each: a signal of several is a list, in the
    order of the files. Counters of kernels count by the one timeline that is read with them.
    """
    values: dict[str, list[Any]] = {}
    for reading in readings:
        for name, value in reading.facts.get("signals", {}).items():
            values.setdefault(name, []).extend(value if isinstance(value, list) else [value])
    document = facts_document(signals={name: per_unit(each) for name, each in values.items()})
    timelines = [reading for reading in readings if reading.window_s is not None]
    if len(timelines) != 1:
        return document
    counters = [k for reading in readings if reading.window_s is None for k in reading.kernels]
    return overlay(document, weighted_facts(timelines[0], counters))
