"""The vocabulary of facts: every name that a facts document may hold, by section."""

from __future__ import annotations

from mileage.doctor.fact_kind import Kind
from mileage.doctor.vocabulary_settings import SETTINGS
from mileage.doctor.vocabulary_setup import ENGINE, HARDWARE, MODEL, TOPOLOGY, WORKLOAD
from mileage.doctor.vocabulary_signals import SIGNALS

__all__ = ["KEYS", "SECTIONS", "key_of"]

SECTIONS: dict[str, dict[str, Kind]] = {
    "engine": ENGINE,
    "model": MODEL,
    "hardware": HARDWARE,
    "settings": SETTINGS,
    "workload": WORKLOAD,
    "signals": SIGNALS,
    "topology": TOPOLOGY,
}
"""Names and kinds by section, in the order in which a document holds them."""

BARE_SECTIONS = ("settings", "workload", "signals")
"""Sections whose names are said without their section: they are unlike any other name."""


def key_of(section: str, name: str) -> str:
    """The key that rules know a fact by: `max_num_seqs`, `hardware.count`."""
    return name if section in BARE_SECTIONS else f"{section}.{name}"


KEYS: dict[str, tuple[str, str]] = {
    key_of(section, name): (section, name) for section, names in SECTIONS.items() for name in names
}
"""Key of every fact -> its section and name."""
