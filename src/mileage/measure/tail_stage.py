"""Stages: the names of what a request's latency is made of, in the order in which they are told."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

__all__ = ["CAUSES", "STAGES", "Cause", "Plain", "Role", "Stage", "stage_title"]

Role = Literal["generator", "gateway", "engine"]
"""The process that a stage or a cause belongs to."""

Plain = Literal[
    "schedule",
    "connect",
    "send",
    "transit",
    "gateway_queue",
    "upstream_wait",
    "prefill",
    "decode",
    "stall_prefill",
    "stall_engine",
    "stall",
    "answer",
]
"""What a moment of a request is from its own events. Each moment has exactly one:
schedule: scheduled, but not taken up by the generator; connect: its connection was made; send: the
request was handed to the kernel; transit: between client and gateway, either way, before the
first token; gateway_queue: inside the gateway, not dispatched; upstream_wait: dispatched, not
computed yet; prefill: its prompt was computed; decode: a token was computed at the usual pace;
stall_prefill: a token was late while others' prompts were computed; stall_engine: all streams of
the target were late at once, without a prompt that explains it; stall: its own stream alone was
late; answer: an answer that is no stream, of which nothing more is seen."""

Cause = Literal[
    "stopped",
    "gc",
    "run_queue",
    "page_fault",
    "event_loop",
    "softirq",
    "steal",
    "pressure",
]
"""What a process or its host did at that moment; it takes the place of the plain stage. stopped:
the process was stopped by a signal; gc: its garbage collector ran; run_queue: it was ready to run,
but had no CPU; page_fault: it waited for pages to be read; event_loop: its event loop was kept
busy by something else; softirq: its CPU served interrupts of network or timers; steal: the
hypervisor gave its CPU to others; pressure: tasks of its host waited for memory or disk."""

Stage: TypeAlias = Plain | Cause

CAUSES: Final[tuple[Cause, ...]] = (
    "stopped",
    "gc",
    "run_queue",
    "page_fault",
    "event_loop",
    "softirq",
    "steal",
    "pressure",
)
"""By precedence: of two at the same moment the earlier one is told."""

_TITLES: Final[dict[Stage, str]] = {
    "schedule": "client schedule",
    "connect": "connect",
    "send": "send",
    "transit": "to and from the gateway",
    "gateway_queue": "gateway queue",
    "upstream_wait": "upstream wait",
    "prefill": "prefill",
    "decode": "decode",
    "stall_prefill": "decode stall by prefill",
    "stall_engine": "stall of the whole engine",
    "stall": "decode stall",
    "answer": "answer",
    "stopped": "stopped process",
    "gc": "garbage collection",
    "run_queue": "kernel run queue",
    "page_fault": "page faults",
    "event_loop": "event loop",
    "softirq": "softirq and network",
    "steal": "stolen CPU",
    "pressure": "host pressure",
}

STAGES: Final[tuple[Stage, ...]] = tuple(_TITLES)


def stage_title(stage: Stage, role: Role | None = None) -> str:
    """Its name for people, with the process that a cause belongs to."""
    return _TITLES[stage] if role is None else f"{_TITLES[stage]} ({role})"
