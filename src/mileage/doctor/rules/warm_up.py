"""Rules of the first requests after a start."""

from __future__ import annotations

from mileage.doctor.case import Case
from mileage.doctor.check import Check, both, either
from mileage.doctor.evidence import Evidence
from mileage.doctor.opinion import Opinion
from mileage.doctor.quantity import Quantity
from mileage.doctor.rule import Rule, rule

__all__ = ["RULES"]

FIRST_FACTOR = 5.0
"""First time to first token over the later ones: a queue or a long prompt makes it a few times
longer, kernels that are compiled on the request's path tens of times."""

FIRST_RESPONSE_SHARE = 0.25
"""Part of the whole start that the first answer takes after it, from which it was not warm."""

FIRST_RESPONSE_MIN_S = 5.0
"""An answer later than this was not only a long prompt on a warm engine."""

LATE_JIT_LOGGED = r"jit compil\w+ during inference|autotun\w+ .*during (serving|inference)"


@rule(
    "WARM001",
    cause="kernels_not_warm",
    needs=("startup_first_response_s", "startup_total_s", "ttft_mean_s", "logs"),
    fires={
        "engine": {"name": "sglang"},
        "signals": {"startup_total_s": 60, "startup_first_response_s": 97},
    },
    clear={"signals": {"startup_total_s": 60, "startup_first_response_s": 60.4}},
    silent={"signals": {"startup_total_s": 60}},
)
def first_requests_compile(e: Evidence) -> Opinion:
    """The device's context and kernels are not warm when traffic arrives.

    ## Why it costs money
    The first requests of each start pay for loading and compiling kernels. With autoscaling this
    is at each peak, when requests are many and late answers break the agreed latency.

    ## How it is told
    The engine says that it is ready, and its first answer takes a good part of the start again;
    or the first of a row of times to first token is many times the later ones; or kernels are
    compiled while requests run. What the start itself takes is the matter of the start-up rules.

    ## What to do
    Send a few requests of the shapes to come before the readiness probe passes (vLLM and SGLang
    warm up themselves unless told not to: `--skip-server-warmup`); keep kernel and compile caches
    on a volume; load modules eagerly with `CUDA_MODULE_LOADING=EAGER`.

    ## Risk
    Warm-up requests make a start longer by seconds to a minute and must not be billed or counted as
    traffic: send them with a key of their own. Eager module loading takes some hundred MiB more on
    each card.
    """
    case = Case()
    total, first = e.number("startup_total_s"), e.number("startup_first_response_s")
    late = _late_answer(total, first)
    series = either(*(_first_is_slow(e.number(f"ttft_{kind}_s")) for kind in ("mean", "p99")))
    case.shows(late, 2.8)
    case.shows(series, 2.5)
    case.shows(e.logged(LATE_JIT_LOGGED), 2.8)
    case.sign(both(series, e.number("process_uptime_s").above(3600.0)), yes=-2.0)
    case.sign(e.is_one_of("storage.kernel_cache", "empty"), yes=-1.0)
    case.sign(e.is_one_of("storage.compile_cache", "empty"), yes=-1.0)
    case.refutes(late.negated())
    return case.opinion(advice="Warm the engine up before its readiness probe passes.")


def _late_answer(total: Quantity, first: Quantity) -> Check:
    truth = None
    if total.known and first.known:
        extra = first.value.minus(total.value)
        truth = extra.at_least(
            max(FIRST_RESPONSE_MIN_S, FIRST_RESPONSE_SHARE * min(total.value.high, 1e9))
        )
    return Check(first.key, first.plain(), f"late by {FIRST_RESPONSE_SHARE:g} of the start", truth)


def _first_is_slow(ttft: Quantity) -> Check:
    """Is the first of at least four values many times the middle one of the others?"""
    parts, truth = ttft.series, None
    if len(parts) >= 4 and all(part.exact for part in parts):
        later = sorted(part.low for part in parts[1:])
        middle = later[len(later) // 2]
        truth = middle > 0 and parts[0].low >= FIRST_FACTOR * middle
    return Check(ttft.key, ttft.plain() if parts else None, "the first many times the rest", truth)


RULES: tuple[Rule, ...] = (first_requests_compile,)
"""Rules of this family."""
