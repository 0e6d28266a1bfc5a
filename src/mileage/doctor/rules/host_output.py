"""Rules of the CPU work on what comes out: grammars and logprobs."""

from __future__ import annotations

import re

from mileage.doctor.arms import Arm
from mileage.doctor.case import Case
from mileage.doctor.check import Check, both, either
from mileage.doctor.engine_flags import engine_family
from mileage.doctor.evidence import Evidence
from mileage.doctor.interval import Interval
from mileage.doctor.machine import Machine
from mileage.doctor.opinion import Change, Opinion
from mileage.doctor.rule import Rule, rule
from mileage.doctor.rules.host_load import (
    core_full,
    gpu_idle,
    gpu_saturated,
    slo_met,
)
from mileage.doctor.rules.host_step_arms import more_load_less_gpu
from mileage.doctor.rules.setting_effect import (
    effect_check,
    free_of_effect,
    loss_of_effect,
    speeds,
    with_more,
)

__all__ = ["RULES"]

OLD_BACKENDS = ("outlines", "lm-format-enforcer", "lm_format_enforcer", "interegular")
"""Backends that build their masks in Python or compile a schema to a whole automaton first."""

FALLBACK_LOGGED = r"fall(ing|s)? ?back to (use )?(outlines|guidance|lm-format-enforcer)"
COMPILES_LOGGED = r"compiling fsm index|grammar (compilation|compile).*(timed? ?out|took|slow)"

SLOWED = 0.67
"""Speed with over speed without from which the loss is more than the mask's own few per cent."""

SLOWED_SOME = 0.87
"""Speed ratio below which the loss is still more than the mask itself costs."""

SAME = 0.9
"""Speed ratio from which the difference is what applying a mask, or some entries, costs
anyway."""

STEP_FACTOR = 3.0
"""Times the decode step that memory bandwidth allows; what other work takes stays below."""

TAIL_FACTOR = 5.0
"""Late first tokens over usual ones that a compilation makes, and a longer prompt does not."""

LARGE_SCHEMA_KB = 4.0
"""Schemas whose grammar takes long to compile: pages of text, not a few fields."""

MANY_LOGPROBS = 100.0
"""Entries per token that no sampler's small top-k needs: each is a Python object, with a token
decoded to text."""

FEW_LOGPROBS = 5.0
"""Entries per token that cost next to nothing."""

ENTRIES_PER_CORE_S = 500_000.0
"""Logprob entries that one core of Python builds per second: some 2 microseconds each, for an
object, a dictionary entry and a decoded token."""

ENTRY_CORE_SHARE = 0.3
"""Share of a core that is missed by the rest of the engine's work on it."""


def _constrained(arm: Arm) -> bool | None:
    kind = arm.get("structured_output")
    return None if kind is None else bool(kind != "none")


def _old_backend(arm: Arm) -> bool | None:
    backend = arm.get("structured_output_backend")
    return None if backend is None else any(old in backend for old in OLD_BACKENDS)


@rule(
    "GRAM001",
    cause="guided_decoding_cpu",
    explains=("engine_host_bound",),
    needs=("structured_output", "structured_output_backend", "schema_kb", "logs", "comparisons"),
    fires={
        "engine": {"name": "vllm", "version": "0.6.3"},
        "settings": {"structured_output_backend": "outlines"},
        "comparisons": [
            {
                "arms": [
                    {
                        "arm": "free",
                        "workload": {"structured_output": "none"},
                        "signals": {"itl_mean_s": 0.022},
                    },
                    {
                        "arm": "schema",
                        "workload": {"structured_output": "json_schema"},
                        "signals": {"itl_mean_s": 0.19},
                    },
                ]
            }
        ],
    },
    clear={"workload": {"structured_output": "none"}, "signals": {"itl_mean_s": 0.02}},
    silent={"workload": {"structured_output": "json_schema"}, "signals": {"itl_mean_s": 0.02}},
)
def grammar_slows_decoding(e: Evidence) -> Opinion:
    """Masks or grammars of structured output are worked out on the CPU, and every step waits.

    ## Why it costs money
    A mask over the whole vocabulary is needed for each constrained request before each token.
    Where it is built in Python, or one request after another, the GPU waits for it, and requests
    without a schema wait too. Compiling a large schema delays the first token in the same way.

    ## How it is told
    Requests with and without a schema beside each other, or two backends; else an old backend,
    or a full engine core, with a GPU that idles or steps far longer than memory bandwidth asks
    for. A difference of a few per cent is the mask itself. With a CPU quota that throttles it is
    `cpu_thread_oversubscription`.

    ## What to do
    vLLM: `--structured-outputs-config.backend xgrammar` (older versions:
    `--guided-decoding-backend xgrammar`). SGLang: `--grammar-backend xgrammar`.
    Reuse schemas so that they stay compiled; keep them small; leave out patterns and bounds that
    make the engine fall back to another backend.

    ## Risk
    Backends differ in what they support: a schema with patterns, bounds or recursion that worked
    before may be refused with a 400, or enforced less strictly. Run your schemas against the new
    backend first; the flag takes a restart and goes back the same way.
    """
    case = Case()
    constrained = either(
        e.is_one_of("structured_output", "json_schema", "grammar", "regex"),
        e.logged(COMPILES_LOGGED),
    )
    old = either(e.contains("structured_output_backend", *OLD_BACKENDS), e.logged(FALLBACK_LOGGED))
    details = ("schema_kb", "structured_output_backend", "max_tokens", "osl_tokens")
    pairs = speeds(e, "structured_output", _constrained, also=details, starves_gpu=True) + speeds(
        e, "structured_output_backend", _old_backend, also=("engine.version",)
    )
    schemas = with_more(e, "schema_kb", factor=2.0)
    slow = either(core_full(e, "engine_process_cpu_ratio"), _far_over_step(e))
    named = e.known("structured_output_backend")
    case.shows(effect_check(pairs, SLOWED), 4.5)
    case.shows(both(effect_check(pairs, SLOWED_SOME), free_of_effect(pairs, SLOWED)), 3.0)
    case.shows(effect_check(schemas, SLOWED), 3.5)
    case.shows(both(constrained, slow), 3.0)
    if old.truth or not named:
        case.shows(both(constrained, gpu_idle(e)), 2.6)
    case.shows(both(constrained, _first_token_tail(e)), 2.8)
    case.shows(both(constrained, e.logged(COMPILES_LOGGED)), 2.8)
    case.shows(both(constrained, old), 2.4)
    case.shows(both(constrained, more_load_less_gpu(e)), 2.5)
    case.sign(old, yes=1.0)
    case.sign(gpu_idle(e), no=-1.5)
    case.sign(e.number("cpu_throttled_ratio").any_above(0.02), yes=-1.0)
    case.sign(slo_met(e), yes=-2.0)
    if not pairs:
        case.refutes(e.is_one_of("structured_output", "none"))
    case.refutes(free_of_effect(pairs, SAME))
    case.refutes(gpu_saturated(e))
    return case.opinion(
        advice="Use a backend whose masks are compiled (xgrammar), and reuse schemas"
        + (" (--guided-decoding-backend xgrammar)." if _older_vllm(e) else "."),
        changes=_to_xgrammar(e) if old.truth else (),
        waste_ratio=loss_of_effect(pairs),
    )


def _to_xgrammar(e: Evidence) -> tuple[Change, ...]:
    return () if _older_vllm(e) else (Change("structured_output_backend", "xgrammar"),)


def _older_vllm(e: Evidence) -> bool:
    """Is it a vLLM that spells the backend's flag in the old way?"""
    version = re.match(r"(\d+)\.(\d+)", e.text("engine.version") or "")
    known = engine_family(e.text("engine.name")) == "vllm" and version is not None
    return known and version is not None and (int(version[1]), int(version[2])) < (0, 11)


def _far_over_step(e: Evidence) -> Check:
    """Is a token far slower than one read of the weights?"""
    step = Machine(e).decode_step_s
    itl = e.number("itl_mean_s")
    truth = None
    if itl.known and step.bounded:
        truth = itl.value.exceeds(step.times(Interval(STEP_FACTOR, STEP_FACTOR)))
    return Check("itl_mean_s", itl.plain(), f"> {STEP_FACTOR:g} x {step.shown()} s", truth)


def _first_token_tail(e: Evidence) -> Check:
    """A late tail of first tokens, as compiling a large schema makes."""
    tail = e.number("ttft_p99_s").exceeds(e.number("ttft_p50_s"), factor=TAIL_FACTOR)
    return both(tail, e.number("schema_kb").above(LARGE_SCHEMA_KB))


@rule(
    "LOGP001",
    cause="logprobs_postprocessing",
    explains=("engine_host_bound", "frontend_cpu_bound", "version_regression"),
    needs=("logprobs", "prompt_logprobs", "output_tokens_per_s", "comparisons"),
    fires={
        "engine": {"name": "vllm", "version": "0.7.2"},
        "workload": {"logprobs": 400},
        "signals": {"gpu_util_ratio": 0.3, "output_tokens_per_s": 900},
    },
    clear={"workload": {"logprobs": 1}, "signals": {"output_tokens_per_s": 900}},
    silent={"signals": {"gpu_util_ratio": 0.3, "output_tokens_per_s": 900}},
)
def logprobs_fill_the_cpu(e: Evidence) -> Opinion:
    """Large lists of log probabilities are built in Python for every token.

    ## Why it costs money
    Each entry becomes an object with a decoded token. Some hundred of them per token are more
    work for one core than the token is for the GPU, which waits meanwhile.

    ## How it is told
    Hundreds of logprobs per token, or so many at that rate that a core is full of them; a
    throughput that falls as their number rises. Memory that runs out over prompt logprobs is
    `oom_memory_headroom`.

    ## What to do
    Ask for as few as the evaluation reads (most read the top 1 to 20); limit them with vLLM's
    `--max-logprobs`; ask for the log probability of given tokens only; spread detokenising over
    more API servers.

    ## Risk
    A client that asks for more log probabilities than the limit is answered with an error, not with
    fewer: tell evaluation teams first. Scores that were computed over the whole vocabulary change
    when only the top is returned.
    """
    case = Case()
    asked, prompt = e.number("logprobs"), e.number("prompt_logprobs")
    pairs = with_more(e, "logprobs", also=("prompt_logprobs",), starves_gpu=True) + with_more(
        e, "prompt_logprobs"
    )
    work = either(
        _entries(e, "logprobs", "output_tokens_per_s"),
        _entries(e, "prompt_logprobs", "prompt_tokens_per_s"),
    )
    many = either(asked.at_least(MANY_LOGPROBS), prompt.at_least(MANY_LOGPROBS))
    case.shows(effect_check(pairs, SAME), 4.5)
    case.shows(many, 3.0)
    case.shows(work, 3.0)
    case.sign(gpu_idle(e), yes=0.5, no=-1.0)
    case.sign(core_full(e, "engine_process_cpu_ratio"), yes=0.5)
    case.sign(core_full(e, "frontend_process_cpu_ratio"), yes=0.5)
    case.sign(gpu_saturated(e), yes=-2.0)
    case.sign(slo_met(e), yes=-1.0)
    case.refutes(free_of_effect(pairs, 0.97))
    if many.truth is not True and not pairs and not work.truth:
        case.refutes(asked.at_most(FEW_LOGPROBS))
    return case.opinion(
        advice=f"Ask for fewer than {asked.value.shown()} logprobs per token."
        if asked.known
        else "Ask for fewer logprobs per token.",
        changes=(Change("logprobs", 20),) if asked.at_least(MANY_LOGPROBS).truth else (),
        waste_ratio=loss_of_effect(pairs),
    )


def _entries(e: Evidence, count: str, rate: str) -> Check:
    """Does a good part of a core build the entries? Entries per token times tokens per second."""
    entries, tokens = e.number(count), e.number(rate)
    truth = None
    if entries.known and tokens.known:
        per_s = entries.value.times(tokens.value)
        truth = per_s.at_least(ENTRY_CORE_SHARE * ENTRIES_PER_CORE_S)
    limit = f"x {rate} >= {ENTRY_CORE_SHARE * ENTRIES_PER_CORE_S:g}/s"
    return Check(count, entries.plain(), limit, truth)


RULES: tuple[Rule, ...] = (grammar_slows_decoding, logprobs_fill_the_cpu)
"""Rules of this family."""
