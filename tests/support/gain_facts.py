"""Facts of a deployment that the simulator knows, for what remedies are worth."""

from __future__ import annotations

from typing import Any

from mileage.doctor.evidence import Evidence
from mileage.doctor.facts import decode_facts
from mileage.doctor.finding import Gain
from mileage.doctor.gain.simulated import simulated_gains
from mileage.doctor.gain.simulator import Simulator
from mileage.doctor.gain.unsimulated import Unsimulated
from mileage.doctor.opinion import Change

__all__ = ["gain_facts", "gain_of", "why_not"]


def gain_facts(**sections: dict[str, Any]) -> dict[str, Any]:
    """Llama 3.1 8B on one H100, 64 requests in flight; sections are laid over that."""
    facts: dict[str, Any] = {
        "engine": {"name": "vllm", "version": "0.11"},
        "model": {"name": "Llama-3.1-8B-Instruct", "dtype": "bf16"},
        "hardware": {"gpu": "H100", "count": 1},
        "settings": {"tensor_parallel_size": 1},
        "workload": {"isl_tokens": 500, "osl_tokens": 250, "concurrency": 64},
        "signals": {},
    }
    for name, section in sections.items():
        merged = {**facts.get(name, {}), **section}
        facts[name] = {key: value for key, value in merged.items() if value is not ...}
    return facts


def _asked(
    changes: tuple[Change, ...], sections: dict[str, dict[str, Any]]
) -> tuple[Gain, ...] | Unsimulated:
    evidence = Evidence(decode_facts(gain_facts(**sections)))
    return simulated_gains(evidence, changes, Simulator())


def gain_of(*changes: Change, **sections: dict[str, Any]) -> dict[str, Gain]:
    """By metric; a section's value `...` leaves the fact out."""
    found = _asked(changes, sections)
    assert not isinstance(found, Unsimulated), found.why
    return {gain.metric: gain for gain in found}


def why_not(*changes: Change, **sections: dict[str, Any]) -> str:
    """Why there is no gain."""
    found = _asked(changes, sections)
    assert isinstance(found, Unsimulated), found
    return found.why
