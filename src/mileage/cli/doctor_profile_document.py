"""What `mileage doctor profile --json` prints of a plan, and of what was read."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import msgspec

from mileage.doctor.collect.profile_reading import ProfileReading
from mileage.doctor.profile_answer import profile_answer
from mileage.doctor.profile_plan import ProfilePlan, Topic

__all__ = ["plan_document", "reading_document"]

_KERNELS_MAX = 50


def plan_document(plan: ProfilePlan) -> dict[str, Any]:
    """The commands as words and as a shell takes them, what they cost, how to read the result."""
    return {
        **msgspec.to_builtins(plan),
        "shell": [shlex.join(words) for words in plan.commands],
        "read": f"mileage doctor profile {plan.topic} --read {shlex.quote(plan.result)}",
    }


def reading_document(topic: Topic, readings: Sequence[ProfileReading]) -> dict[str, Any]:
    """The answer, and of each file its figures, its longest kernels and busiest functions."""
    return {
        "topic": topic,
        "answer": profile_answer(topic, readings),
        "profiles": [
            {
                "tool": reading.tool,
                "file": reading.place,
                "figures": reading.figures,
                "kernels": msgspec.to_builtins(reading.kernels[:_KERNELS_MAX]),
                "functions": [{"name": name, "ratio": share} for name, share in reading.functions],
                "notes": list(reading.notes),
            }
            for reading in readings
        ],
    }
