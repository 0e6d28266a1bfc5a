"""Rules of the processes before the engine: API server and tokenizer."""

from __future__ import annotations

from mileage.doctor.arms import Arm
from mileage.doctor.case import Case
from mileage.doctor.check import Check, both, either
from mileage.doctor.engine_flags import engine_family
from mileage.doctor.evidence import Evidence
from mileage.doctor.opinion import Change, Opinion
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
from mileage.doctor.rules.host_step_arms import offline_is_faster
from mileage.doctor.rules.setting_effect import (
    effect_check,
    free_of_effect,
    gain_check,
    loss_of_effect,
    no_gain,
    speeds,
    with_more,
)

__all__ = ["RULES"]

GAIN = 1.1
"""Speed with more processes over speed with fewer from which the processes were the limit."""

LONG_PROMPT_TOKENS = 4000.0
"""Prompts whose tokenising shows: fast tokenizers do some 0.2 to 1 million tokens per second and
core, slow ones some 20 thousand: tens to hundreds of milliseconds, one prompt after another."""

TOKENISE_SHARE = 0.3
"""Part of the time to first token from which tokenising is what delays it."""

THREAD_BUSY = 0.7
"""Share of its time from which the wait for a thread is longer than its work (M/D/1: 0.67)."""

SLOW_LOGGED = r"using a slow tokenizer"
TTFT_LONG_S = 1.0
"""A time to first token that a person notices; a prefill of a few thousand tokens takes less."""

ENGINE_ROOMY = 0.8
"""Cores of the engine process below which it waits for work part of the time."""

SAME = 1.05
"""Speed ratio up to which two runs count as alike."""

TOKENIZER_THREADS = 4
"""Processes to start with: enough to see the difference, few enough for any host."""

STREAM_FACTOR = 1.2
"""Speed without streaming over speed with it that one event per token explains, and noise does
not."""

TOKENISE_SMALL = 0.1
"""Part of the time to first token up to which tokenising does not matter."""

TTFT_KEYS = ("ttft_mean_s", "ttft_p50_s", "ttft_p90_s", "ttft_p99_s", "client_ttft_mean_s")
"""Signals of the time to first token, the most telling first."""


@rule(
    "FRNT001",
    cause="frontend_cpu_bound",
    needs=(
        "frontend_process_cpu_ratio",
        "engine_process_cpu_ratio",
        "gpu_util_ratio",
        "api_server_count",
        "comparisons",
    ),
    fires={
        "engine": {"name": "vllm", "version": "0.10.1"},
        "settings": {"api_server_count": 1},
        "workload": {"isl_tokens": 300, "stream": True},
        "signals": {
            "frontend_process_cpu_ratio": 0.98,
            "engine_process_cpu_ratio": 0.55,
            "gpu_util_ratio": 0.5,
            "requests_waiting": 0,
        },
    },
    clear={"signals": {"frontend_process_cpu_ratio": 0.35, "gpu_util_ratio": 0.5}},
    silent={"signals": {"gpu_util_ratio": 0.5, "requests_waiting": 0}},
)
def frontend_is_full(e: Evidence) -> Opinion:
    """The API server's process has no time left on its core while the engine waits for it.

    ## Why it costs money
    One asynchronous process parses requests, tokenises, detokenises and writes every streamed
    token of all requests. When its core is full, the engine gets requests and hands out tokens
    at that pace, and the cards behind it idle.

    ## How it is told
    The frontend's core is full and the engine's is not, or the GPU idles and nothing waits at
    the engine; or more API server processes are faster. With media in the prompts the same
    process is full of `mm_preprocess_cpu_bound`; with long prompts and one tokenizer thread, and
    a gain from more of them, it is `tokenizer_cpu_bound`.

    ## What to do
    vLLM: `--api-server-count` above 1. SGLang: more `--tokenizer-worker-num`. Stream several
    tokens per event (SGLang `--stream-interval`), drop per-token work such as logprobs, or put
    several replicas behind a router.

    ## Risk
    Each further API server is a process with a tokenizer and media caches of its own, some GiB of
    host memory and one more core; vLLM then refuses to load LoRA adapters at run time
    (`VLLM_ALLOW_RUNTIME_LORA_UPDATING`). Several tokens per event make streams less smooth.
    """
    case = Case()
    full, idle = core_full(e, "frontend_process_cpu_ratio"), gpu_idle(e)
    roomy = either(
        idle,
        e.number("engine_process_cpu_ratio").any_below(ENGINE_ROOMY),
        e.number("requests_waiting").at_most(0.0),
    )
    servers = with_more(e, "api_server_count", also=("tokenizer_threads",))
    threads = with_more(e, "tokenizer_threads")
    case.shows(full, 2.8)
    case.shows(gain_check(servers, GAIN), 4.5)
    case.shows(offline_is_faster(e, "separate_process"), 3.0)
    case.shows(both(no_gain(threads, SAME), idle), 2.4)
    case.shows(_held_before_engine(e), 2.3)
    case.shows(both(_streaming_slower(e), either(full, idle)), 2.5)
    case.sign(both(full, roomy), yes=1.5)
    case.sign(idle, no=-3.0)
    case.sign(both(full, no_gain(threads, SAME)), yes=1.0)
    case.sign(gain_check(threads, GAIN), yes=-2.0)
    case.sign(has_media(e), yes=-3.0)
    case.sign(e.is_one_of("api_server_mode", "in_process"), yes=-1.5)
    case.sign(both(_long_prompts(e), _one_tokenizer(e)), yes=-1.5)
    case.sign(slo_met(e), yes=-1.0)
    for against in (gpu_saturated(e), nothing_asked(e), no_gain(servers, SAME), _room(e)):
        case.refutes(against)
    now = e.number("api_server_count").value
    count = int(max(2.0, 2 * now.low)) if now.exact else 2
    return case.opinion(
        advice="Spread the API server over more processes.",
        changes=(Change("api_server_count", count),),
        waste_ratio=gpu_idle_share(e) if full.truth and idle.truth else None,
    )


def _held_before_engine(e: Evidence) -> Check:
    """Are far fewer requests at the engine than are wanted, with one API server and a calm card?"""
    wanted, running = e.number("concurrency"), e.number("requests_running")
    hops = e.words("topology.proxies")
    limited = (
        bool(hops) or e.known("client.max_connections") or "client.max_connections" in e.values
    )
    direct = Check("topology.proxies", list(hops or ()), "no hop and no pool before", not limited)
    return both(
        direct,
        wanted.exceeds(running, factor=2.0),
        e.number("requests_waiting").at_most(0.0),
        e.number("api_server_count").at_most(1.0),
        gpu_idle(e),
    )


def _room(e: Evidence) -> Check:
    """Has every frontend process time left?"""
    cores = e.number("frontend_process_cpu_ratio")
    truth = cores.most.below(ENGINE_ROOMY) if cores.known else None
    return Check(cores.key, cores.plain(), f"all < {ENGINE_ROOMY:g}", truth)


def _streaming_slower(e: Evidence) -> Check:
    def streams(arm: Arm) -> bool | None:
        value = arm.get("stream")
        return value if isinstance(value, bool) else None

    return effect_check(speeds(e, "stream", streams), 1.0 / STREAM_FACTOR)


def _long_prompts(e: Evidence) -> Check:
    return e.number("isl_tokens").at_least(LONG_PROMPT_TOKENS)


def _slow_tokenizer(e: Evidence) -> Check:
    return either(e.is_one_of("tokenizer_mode", "slow"), e.logged(SLOW_LOGGED))


def _one_tokenizer(e: Evidence) -> Check:
    return either(e.number("tokenizer_threads").at_most(1.0), _slow_tokenizer(e))


@rule(
    "TOK001",
    cause="tokenizer_cpu_bound",
    explains=("frontend_cpu_bound",),
    needs=(
        "isl_tokens",
        "tokenizer_threads",
        "tokenizer_mode",
        "tokenise_s",
        "ttft_mean_s",
        "gpu_util_ratio",
        "requests_waiting",
        "logs",
        "comparisons",
    ),
    fires={
        "engine": {"name": "vllm", "version": "0.9.2"},
        "settings": {"tokenizer_threads": 1},
        "workload": {"isl_tokens": 24000, "rate_rps": 6},
        "signals": {"ttft_p99_s": 3.4, "gpu_util_ratio": 0.35, "requests_waiting": 0},
    },
    clear={
        "settings": {"tokenizer_threads": 1},
        "workload": {"isl_tokens": 24000},
        "signals": {"tokenise_s": 0.02, "ttft_mean_s": 1.4},
    },
    silent={"workload": {"isl_tokens": 24000}, "signals": {"ttft_p99_s": 3.4}},
)
def tokenizer_is_serial(e: Evidence) -> Opinion:
    """Long prompts are tokenised one after another before they reach the engine.

    ## Why it costs money
    The card cannot start on a prompt that is still text. One thread that tokenises all prompts
    in turn makes them wait outside the engine, where no queue metric shows them.

    ## How it is told
    Long prompts and one tokenizer thread, or a slow tokenizer, while the GPU idles; a time to
    first token that grows though nothing waits at the engine; tokenising as a good part of it;
    or a gain from more threads. Where more threads make no difference it is
    `frontend_cpu_bound`; a queue at the engine is a matter of the scheduler.

    ## What to do
    Use the fast tokenizer (`--tokenizer-mode auto`, a model with `tokenizer.json`). vLLM: more
    API servers (`--api-server-count`). SGLang: `--tokenizer-worker-num`. Triton: more instances
    of the preprocessing model. Or send token ids in place of text.

    ## Risk
    A fast tokenizer may split rare text differently from the slow one: compare token ids of some
    prompts in your languages before. Clients that send token ids must use the very tokenizer of the
    model, or answers become nonsense without an error.
    """
    case = Case()
    idle, long, slow = gpu_idle(e), _long_prompts(e), _slow_tokenizer(e)
    waits_outside = _waits_outside(e)
    large = _tokenise_large(e)
    threads = with_more(e, "tokenizer_threads")
    modes = speeds(e, "tokenizer_mode", _is_slow)
    case.shows(both(long, _one_tokenizer(e), either(idle, waits_outside)), 3.5)
    case.shows(both(slow, either(long, idle, core_full(e, "frontend_process_cpu_ratio"))), 3.0)
    case.shows(large, 4.0)
    case.shows(_thread_busy(e), 3.5)
    case.shows(either(gain_check(threads, GAIN), effect_check(modes, 0.9)), 4.5)
    case.shows(both(long, waits_outside, idle), 2.6)
    case.shows(_triton_preprocess_queues(e), 3.5)
    case.shows(both(_ttft_follows_length(e), idle, _one_tokenizer(e)), 3.0)
    case.sign(_ttft_long(e), yes=0.5)
    case.sign(idle, no=-1.5)
    case.sign(e.number("tokenizer_threads").at_least(4.0), yes=-1.5)
    case.sign(has_media(e), yes=-1.5)
    case.sign(slo_met(e), yes=-1.0)
    if not large.truth:
        case.refutes(_tokenise_small(e))
    for against in (gpu_saturated(e), nothing_asked(e), no_gain(threads, SAME), _queues(e)):
        case.refutes(against)
    case.refutes(free_of_effect(modes, 0.98))
    return case.opinion(
        advice="Tokenise in more than one thread, with the fast tokenizer.",
        changes=_tokenizer_changes(e, slow),
        waste_ratio=loss_of_effect(modes) or (gpu_idle_share(e) if idle.truth else None),
    )


def _tokenizer_changes(e: Evidence, slow: Check) -> tuple[Change, ...]:
    """Without its mode an engine takes the fast tokenizer; of threads only SGLang has a number."""
    if slow.truth:
        return (Change("tokenizer_mode", None),)
    if engine_family(e.text("engine.name")) == "sglang":
        return (Change("tokenizer_threads", TOKENIZER_THREADS),)
    return ()


def _is_slow(arm: Arm) -> bool | None:
    mode = arm.get("tokenizer_mode")
    return None if mode is None else bool(mode == "slow")


def _ttft_long(e: Evidence) -> Check:
    return either(*(e.number(key).at_least(TTFT_LONG_S) for key in TTFT_KEYS))


def _waits_outside(e: Evidence) -> Check:
    """Is the time to first token long although nothing waits at the engine?"""
    queue = either(
        e.number("requests_waiting").at_most(0.0),
        part_of(e.number("queue_time_mean_s"), e.number("ttft_mean_s"), 0.2).negated(),
        part_of(e.number("queue_time_p99_s"), e.number("ttft_p99_s"), 0.2).negated(),
    )
    return both(_ttft_long(e), queue)


def _queues(e: Evidence) -> Check:
    """Is most of the time to first token spent in the engine's own queue?"""
    return either(
        part_of(e.number("queue_time_mean_s"), e.number("ttft_mean_s"), 0.6),
        part_of(e.number("queue_time_p50_s"), e.number("ttft_p50_s"), 0.6),
        part_of(e.number("queue_time_p99_s"), e.number("ttft_p99_s"), 0.6),
    )


def _ttft_follows_length(e: Evidence) -> Check:
    """Does the time to first token grow as the prompts do, with nothing waiting at the engine?"""
    calm = e.number("requests_waiting").at_most(0.0)
    for comparison in e.comparisons:
        for one, other in comparison.pairs():
            short, long = sorted((one, other), key=lambda arm: arm.number("isl_tokens").value.low)
            longer = long.number("isl_tokens").exceeds(short.number("isl_tokens"), factor=2.0)
            for key in TTFT_KEYS:
                ratio = comparison.ratio(key, long, short)
                if longer.truth and ratio.known:
                    return both(longer, ratio.at_least(2.0), calm)
    return Check("comparisons", None, "grows with isl_tokens", None)


def _tokenise_large(e: Evidence) -> Check:
    spent = e.number("tokenise_s")
    return either(*(part_of(spent, e.number(key), TOKENISE_SHARE) for key in TTFT_KEYS))


def _tokenise_small(e: Evidence) -> Check:
    spent = e.number("tokenise_s")
    small = either(*(part_of(spent, e.number(key), TOKENISE_SMALL).negated() for key in TTFT_KEYS))
    return small if _thread_busy(e).truth is not True else small.negated()


def _thread_busy(e: Evidence) -> Check:
    """Load of the tokenizer threads: arrivals times time, over threads."""
    spent, threads = e.number("tokenise_s"), e.number("tokenizer_threads")
    for key in ("requests_per_s_arriving", "rate_rps", "requests_per_s"):
        rate = e.number(key)
        if rate.known and spent.known:
            load = rate.value.times(spent.value)
            load = load.over(threads.value) if threads.known else load
            truth = load.at_least(THREAD_BUSY)
            return Check("tokenise_s", spent.plain(), f"x {key} >= {THREAD_BUSY:g}", truth)
    return Check("tokenise_s", spent.plain(), "threads busy", None)


def _triton_preprocess_queues(e: Evidence) -> Check:
    """Does the tokenise model of a Triton ensemble queue far more than its detokenise model?"""
    before, after = e.number("triton_queue_preprocess_s"), e.number("triton_queue_postprocess_s")
    return both(before.above(TTFT_LONG_S), before.exceeds(after, factor=5.0))


RULES: tuple[Rule, ...] = (frontend_is_full, tokenizer_is_serial)
"""Rules of this family."""
