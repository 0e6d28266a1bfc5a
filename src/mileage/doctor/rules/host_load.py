"""How busy the GPU and the host's processes are: checks that the rules of the host share."""

from __future__ import annotations

from mileage.doctor.check import Check, both, either
from mileage.doctor.evidence import Evidence
from mileage.doctor.interval import Interval, exactly
from mileage.doctor.quantity import Quantity

__all__ = [
    "CORE_FULL",
    "any_served",
    "core_full",
    "gpu_idle",
    "gpu_idle_share",
    "gpu_saturated",
    "has_media",
    "no_gpu",
    "nothing_asked",
    "on_mig",
    "part_of",
    "slo_met",
]

CORE_FULL = 0.9
"""Cores of a single-threaded process above which it has no time left: one core is 1.0, and what
the sampler and the operating system take of it is a few hundredths."""

BUSY_SHARE_MAX = 0.8
"""Share of time with a kernel resident up to which the card plainly waits for something: work
that is queued on time leaves gaps of a few hundredths."""

SM_SHARE_MAX = 0.8
"""The same for the mean over SMs; steps back to back keep it near 0.9, where kernels are small
enough to leave some SMs empty."""

SM_SATURATED = 0.9
"""Mean share of SMs at work that steps back to back reach."""

RESIDENT_SATURATED = 0.97
"""Share of time with a kernel resident that leaves no gaps between steps."""

MEMORY_SATURATED = 0.7
"""A memory-bound step reads at about this share of the time at least: kernels reach 0.7 to 0.9 of
the data sheet's bandwidth, and not more."""

POWER_SATURATED = 0.9
"""Share of the power limit that only a card at full work draws."""

CPU_NAMES = ("xeon", "epyc", "ryzen", "threadripper", "graviton", "neoverse", "grace cpu")
"""Processors that stand where the card's name is expected when there is none."""

RUNNING_MIN = 0.05
"""Mean requests in the batch below which nothing is served."""


def on_mig(e: Evidence) -> Check:
    """Is the card cut into MIG slices?"""
    profile = e.text("hardware.mig_profile")
    cut = Check("hardware.mig_profile", profile, "set", None if profile is None else profile != "")
    return either(cut, e.is_one_of("k8s.gpu_sharing", "mig"))


def no_gpu(e: Evidence) -> Check:
    """Does the engine compute on the CPU, so that full cores are its work?"""
    return either(
        e.number("hardware.count").at_most(0.0),
        e.is_one_of("hardware.gpu", "none", "cpu", ""),
        e.contains("hardware.gpu", *CPU_NAMES),
        e.is_one_of("engine.variant", "cpu", "embedded", "cpu-only"),
        e.contains("engine.version", "+cpu"),
        e.logged(r"detected platform cpu\b|device_config=cpu\b|no usable GPU found"),
    )


def core_full(e: Evidence, key: str) -> Check:
    """Has the busiest process of that role no time left on its core?"""
    cores = e.number(key)
    truth = cores.most.at_least(CORE_FULL) if cores.known else None
    return Check(key, cores.plain(), f"any >= {CORE_FULL:g}", truth)


def gpu_idle(e: Evidence) -> Check:
    """Does the GPU wait for a good part of the time?

    NVML's utilisation reads 0 on a MIG slice whatever it does, and does not count there.
    """
    limits = {"gr_engine_active_ratio": BUSY_SHARE_MAX, "sm_active_ratio": SM_SHARE_MAX}
    if not _util_unreadable(e):
        limits["gpu_util_ratio"] = BUSY_SHARE_MAX
    # A signal that is absent leaves the answer of the others as it is: one of them is enough.
    known = [e.number(key).at_most(limit) for key, limit in limits.items() if e.known(key)]
    return either(*known) if known else e.number("sm_active_ratio").at_most(SM_SHARE_MAX)


def _util_unreadable(e: Evidence) -> bool:
    """Does NVML's utilisation say nothing: on a MIG slice, or 0 while tokens come out?"""
    zero = e.number("gpu_util_ratio").all_below(1e-9).truth is True
    return on_mig(e).truth is True or (zero and any_served(e).truth is True)


def gpu_saturated(e: Evidence) -> Check:
    """Is the GPU itself at work nearly all the time? NVML's "utilisation" does not tell."""
    limit = e.number("power_limit_w")
    drawn = e.number("power_w").where(
        f">= {POWER_SATURATED:g} x power_limit_w",
        lambda power: power.over(limit.value).at_least(POWER_SATURATED) if limit.known else None,
    )
    return either(
        e.number("sm_active_ratio").at_least(SM_SATURATED),
        e.number("gr_engine_active_ratio").at_least(RESIDENT_SATURATED),
        e.number("dram_active_ratio").at_least(MEMORY_SATURATED),
        drawn,
    )


def gpu_idle_share(e: Evidence) -> Interval | None:
    """Share of time in which no kernel is resident; None where it is not known."""
    for key in ("gr_engine_active_ratio", "gpu_util_ratio", "sm_active_ratio"):
        busy = e.number(key)
        if busy.known and not (key == "gpu_util_ratio" and _util_unreadable(e)):
            return exactly(1.0).minus(busy.value.clipped(0.0, 1.0))
    return None


def any_served(e: Evidence) -> Check:
    """Are requests served at all?"""
    return either(
        e.number("requests_running").above(RUNNING_MIN),
        e.number("output_tokens_per_s").above(0.0),
        e.number("requests_per_s").above(0.0),
        e.number("prompt_tokens_per_s").above(0.0),
    )


def nothing_asked(e: Evidence) -> Check:
    """Does nothing run and nothing wait?"""
    running, waiting = e.number("requests_running"), e.number("requests_waiting")
    quiet = either(
        waiting.at_most(0.0),
        e.number("output_tokens_per_s").at_most(0.0),
        e.number("rate_rps").at_most(0.0),
        e.is_one_of("kind", "none"),
    )
    return both(running.at_most(RUNNING_MIN), quiet)


def has_media(e: Evidence) -> Check:
    """Do prompts hold images, video or audio?"""
    return either(
        e.is_one_of("mm_input", "image", "video", "audio"),
        e.number("images_per_request").above(0.0),
        e.number("video_frames").above(0.0),
        e.number("image_pixels").above(0.0),
        e.number("mm_preprocess_s").above(0.0),
    )


def part_of(part: Quantity, whole: Quantity, share: float) -> Check:
    """Is `part` at least that share of `whole`?"""
    truth = None
    if part.known and whole.known and whole.value.high > 0:
        truth = part.value.over(whole.value).at_least(share)
    return Check(part.key, part.plain(), f">= {share:g} x {whole.key}", truth)


def slo_met(e: Evidence) -> Check:
    """Are the agreed latencies kept, where there are any?"""
    asked = []
    for latency, agreed in (
        ("itl_p99_s", "slo_itl_s"),
        ("itl_p50_s", "slo_itl_s"),
        ("itl_mean_s", "slo_itl_s"),
        ("ttft_p99_s", "slo_ttft_s"),
        ("ttft_p50_s", "slo_ttft_s"),
        ("ttft_mean_s", "slo_ttft_s"),
    ):
        measured, limit = e.number(latency), e.number(agreed)
        if measured.known and limit.known:
            asked.append(measured.exceeds(limit).negated())
    if not asked:
        return Check("slo_itl_s", None, "met", None)
    return both(*asked)
