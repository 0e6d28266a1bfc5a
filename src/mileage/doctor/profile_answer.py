"""What a profile says to the question that it was made for, in a sentence."""

from __future__ import annotations

from collections.abc import Sequence

from mileage.doctor.collect.kernel_name import shown_kernel
from mileage.doctor.collect.profile_reading import ProfileReading
from mileage.doctor.profile_plan import Topic

__all__ = ["profile_answer"]


def profile_answer(topic: Topic, readings: Sequence[ProfileReading]) -> str:
    """The sentence; that it cannot tell, where the exports do not hold it."""
    answers = {
        "gaps": _gaps,
        "kernels": _kernels,
        "memory": _memory,
        "communication": _communication,
        "cpu": _cpu,
    }
    for reading in readings:
        told = answers[topic](reading)
        if told is not None:
            return told
    return f"What was read does not tell about {topic}."


def _gaps(reading: ProfileReading) -> str | None:
    figures = reading.figures
    if "gpu_busy_ratio" not in figures:
        return None
    told = (
        f"The GPU ran nothing for {1 - figures['gpu_busy_ratio']:.0%} of {figures['window_s']:.3g} "
        f"s: {figures['gpu_idle_short_gaps_ratio']:.0%} in gaps under 1 ms, "
        f"{figures['gpu_idle_long_gaps_ratio']:.0%} in longer ones"
    )
    step_s = reading.facts.get("signals", {}).get("step_time_s")
    gap_s = reading.facts.get("signals", {}).get("step_host_gap_s")
    if step_s and gap_s is not None:
        told += f"; of a step of {step_s * 1e3:.3g} ms it waits {gap_s * 1e3:.3g} ms for the next"
    return f"{told}."


def _kernels(reading: ProfileReading) -> str | None:
    total_s = sum(kernel.total_s for kernel in reading.kernels)
    if total_s <= 0:
        return None
    first = reading.kernels[0]
    by_kind: dict[str, float] = {}
    for kernel in reading.kernels:
        by_kind[kernel.kind] = by_kind.get(kernel.kind, 0.0) + kernel.total_s
    kinds = sorted(by_kind.items(), key=lambda item: -item[1])[:4]
    shares = ", ".join(f"{kind} {part_s / total_s:.0%}" for kind, part_s in kinds)
    return (
        f"{shown_kernel(first.name)} takes {first.total_s / total_s:.0%} of the kernels' time "
        f"({shares})."
    )


def _memory(reading: ProfileReading) -> str | None:
    ratio = reading.figures.get("profiled_dram_active_ratio")
    if ratio is None:
        return None
    used = reading.figures.get("profiled_sm_throughput_ratio")
    beside = "" if used is None else f", of its arithmetic {used:.0%}"
    return f"While they run, kernels use {ratio:.0%} of the memory's bandwidth{beside}."


def _communication(reading: ProfileReading) -> str | None:
    figures = reading.figures
    if "communication_ratio" in figures:
        return (
            f"Communication takes {figures['communication_ratio']:.0%} of the time, and for "
            f"{figures['communication_alone_ratio']:.0%} nothing else runs beside it."
        )
    if "communication_of_kernels_ratio" in figures:
        return f"Communication is {figures['communication_of_kernels_ratio']:.0%} of kernels' time."
    return None


def _cpu(reading: ProfileReading) -> str | None:
    if reading.functions:
        name, share = reading.functions[0]
        return f"{name} takes {share:.0%} of the time in which Python (or what it calls) runs."
    host_s, window_s = reading.figures.get("host_operators_s"), reading.window_s
    if host_s is not None and window_s:
        return f"The host spends {min(1.0, host_s / window_s):.0%} of the time in operators."
    return None
