"""Rules of prompts with images, video or audio."""

from __future__ import annotations

from mileage.doctor.arms import Arm
from mileage.doctor.case import Case
from mileage.doctor.check import Check, both, either
from mileage.doctor.evidence import Evidence
from mileage.doctor.interval import Interval
from mileage.doctor.opinion import Change, Opinion
from mileage.doctor.quantity import Quantity
from mileage.doctor.rule import Rule, rule
from mileage.doctor.rules.host_load import (
    core_full,
    gpu_idle,
    gpu_idle_share,
    gpu_saturated,
    has_media,
    nothing_asked,
    part_of,
    slo_met,
)
from mileage.doctor.rules.setting_effect import (
    effect_check,
    gain_check,
    no_gain,
    speeds,
    with_more,
)

__all__ = ["RULES"]

GAIN = 1.1
"""Speed ratio from which one arm is faster by more than noise."""

SAME = 1.03
"""Speed ratio up to which more workers bring nothing."""

SHARE_OF_TTFT = 0.3
"""Part of the time to first token from which a stage before the engine is what delays it."""

SHARE_SMALL = 0.1
"""Part of the time to first token up to which preprocessing does not matter."""

WORKER_BUSY = 0.7
"""Share of its time from which the wait for a worker is longer than its work (M/D/1: 0.67)."""

FEW_WORKERS = 2.0
"""Workers that a single card outruns: each prepares a few pictures per second."""

COMPARABLE = 0.8
"""Packing over preprocessing from which they count as alike: the boundary of "comparable"."""

PACKING_SMALL = 0.5
"""Packing over preprocessing below which the preprocessing is the matter."""

MEDIA_SLOWS = 0.7
"""Speed with media over speed without that their tokens alone would not explain."""

CACHE_HITS_MOST = 0.9
"""Hit ratio at which hardly anything is prepared anew."""

CPU_FULL = 0.9
"""Share of all CPUs in use from which none is free."""

TTFT_KEYS = ("ttft_mean_s", "ttft_p50_s", "ttft_p90_s", "ttft_p99_s", "client_ttft_mean_s")
"""Signals of the time to first token, the most telling first."""

SLOW_PROCESSOR_LOGGED = r"using a slow image processor|slow (image|video) processor"


@rule(
    "MM001",
    cause="mm_preprocess_cpu_bound",
    explains=("frontend_cpu_bound", "engine_host_bound", "tokenizer_cpu_bound"),
    needs=(
        "mm_input",
        "frontend_process_cpu_ratio",
        "gpu_util_ratio",
        "mm_processor_workers",
        "mm_preprocess_s",
        "cpu_util_ratio",
        "comparisons",
    ),
    fires={
        "engine": {"name": "vllm", "version": "0.10.0"},
        "workload": {"mm_input": "image", "images_per_request": 4},
        "signals": {"frontend_process_cpu_ratio": 0.97, "gpu_util_ratio": 0.3},
    },
    clear={
        "workload": {"mm_input": "image"},
        "signals": {"mm_preprocess_s": 0.01, "ttft_mean_s": 0.6, "gpu_util_ratio": 0.9},
    },
    silent={"workload": {"mm_input": "image"}, "signals": {"ttft_mean_s": 0.6}},
)
def media_preprocessing_is_slow(e: Evidence) -> Opinion:
    """Decoding and resizing of images, video or audio on the CPU limit the request rate.

    ## Why it costs money
    A picture is decoded, resized and cut into patches in a process before the engine. One worker
    does a few pictures per second, and the card that could do far more waits for them.

    ## How it is told
    Prompts hold media, and the process that prepares them is full, or has one worker, while the
    GPU idles; or the preprocessing is a good part of the time to first token; or more workers or
    a faster library are faster. Where packing the pixels for another process takes as long it is
    `mm_ipc_serialisation`; without media a full frontend is `frontend_cpu_bound`.

    ## What to do
    vLLM: `--api-server-count` above 1, `--mm-processor-kwargs '{"use_fast": true}'`, a larger
    `--mm-processor-cache-gb`. SGLang: fast image processor, more tokenizer workers. Send smaller
    pictures and fewer frames; decode at the client; set torch's threads to the granted cores.

    ## Risk
    The fast image processor resizes with other filters than the slow one, so pixels, and now and
    then answers, differ a little: compare on your pictures. Smaller pictures lose small print. More
    API servers and a larger processor cache take host memory, each server its own.
    """
    case = Case()
    full, idle = core_full(e, "frontend_process_cpu_ratio"), gpu_idle(e)
    cpu_full = e.number("cpu_util_ratio").any_above(CPU_FULL)
    few, spent = e.number("mm_processor_workers").at_most(FEW_WORKERS), e.number("mm_preprocess_s")
    large, packing = _share_of_ttft(e, spent), _packing(e)
    gain = either(
        gain_check(with_more(e, "mm_processor_workers"), GAIN),
        gain_check(with_more(e, "mm_resize_threads", also=("mm_resize_library",)), GAIN),
        _library_matters(e),
    )
    case.must(has_media(e))
    case.shows(full, 3.2)
    case.shows(both(idle, cpu_full), 2.8)
    case.shows(both(few, idle), 3.0)
    case.shows(large, 3.5)
    case.shows(_workers_busy(e), 3.5)
    case.shows(gain, 4.5)
    case.shows(both(_media_slow(e), either(idle, cpu_full, few)), 2.6)
    case.shows(both(e.logged(SLOW_PROCESSOR_LOGGED), idle), 2.6)
    case.sign(both(full, idle), yes=1.0)
    case.sign(idle, no=-2.0)
    case.sign(part_of(packing, spent, COMPARABLE), yes=-2.5)
    case.sign(e.number("mm_cache_hit_ratio").at_least(CACHE_HITS_MOST), yes=-1.5)
    case.sign(slo_met(e), yes=-1.0)
    if not large.truth and not gain.truth:
        case.refutes(both(_small_share(e, spent), idle.negated()))
    for against in (gpu_saturated(e), nothing_asked(e)):
        case.refutes(against)
    case.refutes(no_gain(with_more(e, "mm_processor_workers"), SAME))
    workers = e.number("mm_processor_workers").value
    return case.opinion(
        advice="Prepare media in more processes, with the fast processor, or send smaller media.",
        changes=(Change("mm_processor_workers", int(4 * workers.low)),)
        if workers.exact and few.truth and workers.low >= 1
        else (),
        waste_ratio=gpu_idle_share(e) if idle.truth else None,
    )


def _share_of_ttft(e: Evidence, spent: Quantity) -> Check:
    return either(*(part_of(spent, e.number(key), SHARE_OF_TTFT) for key in TTFT_KEYS))


def _small_share(e: Evidence, spent: Quantity) -> Check:
    return either(*(part_of(spent, e.number(key), SHARE_SMALL).negated() for key in TTFT_KEYS))


def _packing(e: Evidence) -> Quantity:
    """Packing and unpacking together, as one quantity."""
    parts = [e.number("mm_serialise_s"), e.number("mm_deserialise_s")]
    known = [part for part in parts if part.known]
    if not known:
        return parts[0]
    total = known[0].value
    for part in known[1:]:
        total = total.plus(part.value)
    # One of the two alone is a lower bound of both.
    total = total if len(known) == 2 else Interval(total.low, float("inf"))
    return Quantity("mm_serialise_s", "s", "one", (total,))


def _workers_busy(e: Evidence) -> Check:
    """Load of the workers: requests per second times time, over workers."""
    spent, workers = e.number("mm_preprocess_s"), e.number("mm_processor_workers")
    for key in ("requests_per_s_arriving", "rate_rps", "requests_per_s"):
        rate = e.number(key)
        if rate.known and spent.known and workers.known:
            truth = rate.value.times(spent.value).over(workers.value).at_least(WORKER_BUSY)
            return Check(spent.key, spent.plain(), f"x {key} / workers >= {WORKER_BUSY:g}", truth)
    return Check(spent.key, spent.plain(), "workers busy", None)


def _library_matters(e: Evidence) -> Check:
    """Do two libraries for resizing differ in speed?"""
    for comparison in e.comparisons:
        if comparison.varies_only("mm_resize_library", "mm_resize_threads"):
            for one, other in comparison.pairs():
                speed = comparison.speed(one, other)
                if speed.known:
                    truth = either(speed.above(GAIN), speed.below(1.0 / GAIN)).truth
                    return Check("comparisons", speed.value.plain(), "library matters", truth)
    return Check("comparisons", None, "library matters", None)


def _media_slow(e: Evidence) -> Check:
    """Are requests with media, or with more of them, far slower than those without?"""

    def media(arm: Arm) -> bool | None:
        kind = arm.get("mm_input")
        return None if kind is None else bool(kind != "none")

    more = (
        with_more(e, "image_pixels", factor=2.0)
        + with_more(e, "images_per_request")
        + with_more(e, "video_frames", factor=2.0)
    )
    return effect_check(speeds(e, "mm_input", media) + more, MEDIA_SLOWS)


@rule(
    "MM002",
    cause="mm_ipc_serialisation",
    explains=("mm_preprocess_cpu_bound", "frontend_cpu_bound"),
    needs=("mm_serialise_s", "mm_deserialise_s", "mm_preprocess_s", "ttft_mean_s", "comparisons"),
    fires={
        "engine": {"name": "vllm", "version": "0.8.5"},
        "workload": {"mm_input": "video", "video_frames": 64},
        "signals": {"mm_serialise_s": 1.1, "mm_deserialise_s": 0.8, "mm_preprocess_s": 1.3},
    },
    clear={
        "workload": {"mm_input": "image"},
        "signals": {"mm_serialise_s": 0.01, "mm_deserialise_s": 0.01, "mm_preprocess_s": 0.5},
    },
    silent={"workload": {"mm_input": "image"}, "signals": {"mm_preprocess_s": 0.5}},
)
def media_is_copied_between_processes(e: Evidence) -> Opinion:
    """Packing large pixel tensors for another process takes as long as making them.

    ## Why it costs money
    Prepared media are tens to hundreds of megabytes per request. Pickled, sent over a socket and
    unpacked they hold up both processes, and the card waits for the copy of a copy.

    ## How it is told
    Packing and unpacking take about as long as the preprocessing, or longer; or they are a good
    part of the time to first token; or the same load is faster with one process. Where the
    preprocessing itself is most of it, it is `mm_preprocess_cpu_bound`.

    ## What to do
    vLLM: `--mm-processor-cache-type shm`, and a version whose messages hold tensors without
    pickling them; SGLang: CUDA IPC (`SGLANG_USE_CUDA_IPC_TRANSPORT=1`) or shared memory. Send
    pixels as 8-bit integers and normalise on the GPU; fewer frames, smaller pictures.

    ## Risk
    A shared-memory cache needs `/dev/shm` of its size in the pod (`emptyDir` with `medium:
    Memory`), which counts towards its memory limit. Handles to GPU memory that cross processes tie
    their lives together: one that crashes can take the other with it.
    """
    case = Case()
    packing, spent = _packing(e), e.number("mm_preprocess_s")
    alike = part_of(packing, spent, COMPARABLE)
    one_process = speeds(e, "api_server_mode", _separate)
    case.shows(alike, 4.0)
    case.shows(_share_of_ttft(e, packing), 3.5)
    case.shows(both(has_media(e), effect_check(one_process, 0.9)), 3.5)
    case.sign(has_media(e), yes=0.5, no=-2.0)
    case.sign(e.number("mm_cache_hit_ratio").at_least(CACHE_HITS_MOST), yes=-1.0)
    case.sign(gpu_saturated(e), yes=-1.5)
    if packing.known and spent.known and not _share_of_ttft(e, packing).truth:
        case.refutes(part_of(packing, spent, PACKING_SMALL).negated())
    case.refutes(nothing_asked(e))
    return case.opinion(
        advice="Hand media over in shared memory, or as 8-bit pixels, in place of pickled tensors.",
        waste_ratio=gpu_idle_share(e) if gpu_idle(e).truth else None,
    )


def _separate(arm: Arm) -> bool | None:
    mode = arm.get("api_server_mode")
    return {"separate_process": True, "in_process": False}.get(mode or "")


RULES: tuple[Rule, ...] = (media_preprocessing_is_slow, media_is_copied_between_processes)
"""Rules of this family."""
