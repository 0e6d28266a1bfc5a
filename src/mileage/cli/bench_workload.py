"""The requests of a run, by its options: of a trace, or made up at a rate or for many clients."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace
from rich.console import Console

from mileage.cli.bench_arguments import LoadArguments
from mileage.cli.progress import Steps
from mileage.cli.trace_arguments import columns_of_options, read_options, trace_part, window_of
from mileage.cli.trace_source import open_trace
from mileage.core.bounds import require_positive, require_range
from mileage.core.errors import ConfigError
from mileage.workload.synthetic.generator import generate
from mileage.workload.synthetic.spelling import parse_synthetic, seconds_of
from mileage.workload.trace_request import TraceRequest

__all__ = ["BenchWorkload", "warmup_of", "workload_of"]

_WARMUP_S: Final = 5.0
_HELD_MAX: Final = 5_000_000
_ENDLESS: Final = 1_000_000_000
"""Requests of a made-up workload: more than any run sends."""
_OF_RATE: Final = {
    "rate": "--rate",
    "arrivals": "--arrivals",
    "cv": "--arrivals",
    "prompt": "--prompt-tokens",
    "output": "--output-tokens",
}
_ARRIVALS: Final = ("poisson", "even", "gamma", "weibull")


class BenchWorkload(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be sent after the warm-up, and how often it can be read."""

    name: str
    """Such as a trace's, or `8/s poisson, 512 + 128 tokens`."""
    make: Callable[[], Iterable[TraceRequest]]
    """All of its requests from the beginning; of a made-up one next to endlessly many."""
    is_trace: bool
    count: int | None
    """Requests of a trace; None: it ends with the run."""
    facts: dict[str, Any]
    """For a document."""

    def requests(self, *, warmup_s: float) -> tuple[Iterator[TraceRequest], Iterator[TraceRequest]]:
        """Those of the warm-up, and all the rest, on one schedule that begins with the warm-up.

        A trace is measured as a whole: its warm-up are the requests of its first `warmup_s`, once
        more. They must be given other text, or caches would know the trace when it comes. A made-up
        workload goes on from its warm-up as it began.
        """
        if not self.is_trace:
            return iter(()), iter(self.make())
        first = itertools.takewhile(lambda r: r.arrived_s < warmup_s, self.make())
        return first, (replace(r, arrived_s=r.arrived_s + warmup_s) for r in self.make())


def warmup_of(arguments: LoadArguments) -> float:
    """Seconds of warm-up: as asked; else 5, and none for a closed loop over a trace, which would
    lose its first requests to it."""
    if arguments.warmup is not None:
        return seconds_of("--warmup", arguments.warmup)
    return 0.0 if arguments.trace is not None and arguments.concurrency is not None else _WARMUP_S


def workload_of(arguments: LoadArguments, console: Console) -> BenchWorkload:
    """The workload that the options mean. A trace is read here as a whole, so that one that has a
    fault is told before anything is sent.

    Raises ConfigError, also where no request is left, and TraceError with file and line.
    """
    if arguments.trace is not None:
        if arguments.rate is not None:
            raise ConfigError("--rate", arguments.rate, "either --trace or --rate")
        if arguments.shared_prefix_ratio:
            value, expected = arguments.shared_prefix_ratio, "none: a trace tells what is shared"
            raise ConfigError("--shared-prefix-ratio", value, expected)
        return _of_trace(arguments, console)
    if arguments.rate_scale != 1.0 or arguments.window is not None:
        given = "--window" if arguments.window is not None else "--rate-scale"
        raise ConfigError(given, arguments.window or arguments.rate_scale, "a --trace")
    return _made_up(arguments)


def _of_trace(arguments: LoadArguments, console: Console) -> BenchWorkload:
    assert arguments.trace is not None
    require_range("--rate-scale", arguments.rate_scale, 1e-9, 1e9)
    options = read_options(
        format=arguments.format,
        columns=columns_of_options(arguments.columns or ()),
        time_unit=arguments.time_unit,
        keep_failed=arguments.keep_failed,
        spread=arguments.spread,
        spread_max_s=seconds_of("--spread-max", arguments.spread_max),
        seed=arguments.seed,
        bad_max=arguments.bad_lines_max,
    )
    part = trace_part(
        **window_of(arguments.window),
        rate_scale=None if arguments.rate_scale == 1.0 else arguments.rate_scale,
        head=arguments.requests,
        seed=arguments.seed,
    )
    until_s = None
    if arguments.duration is not None and arguments.concurrency is None:
        until_s = seconds_of("--duration", arguments.duration)
    with contextlib.ExitStack() as stack:
        steps = stack.enter_context(Steps(console))
        opened = stack.enter_context(
            open_trace(arguments.trace, options=options, part=part, progress=steps, key="--trace")
        )
        requests: Iterable[TraceRequest] = opened
        if until_s is not None and arguments.ramp is None:
            requests = itertools.takewhile(lambda r: r.arrived_s < until_s, opened)
        held = list(itertools.islice(requests, _HELD_MAX + 1))
    if not held:
        raise ConfigError("--trace", arguments.trace, "at least one request in that part of it")
    if len(held) > _HELD_MAX:
        expected = f"at most {_HELD_MAX:,} requests: --requests or --window take a part"
        raise ConfigError("--trace", arguments.trace, expected)
    facts = {
        "trace": opened.name,
        "format": opened.tally.format,
        "requests": len(held),
        "bad_records": opened.tally.bad,
        "bad_named": list(opened.tally.bad_named),
        "span_s": held[-1].arrived_s - held[0].arrived_s,
        "rate_scale": arguments.rate_scale,
        "window": arguments.window,
        "prompt_tokens": sum(r.prompt_tokens for r in held),
        "output_tokens": sum(r.output_tokens for r in held),
    }
    return BenchWorkload(
        name=opened.name, make=lambda: held, is_trace=True, count=len(held), facts=facts
    )


def _made_up(arguments: LoadArguments) -> BenchWorkload:
    rate = _rate(arguments)
    kind, colon, cv = arguments.arrivals.partition(":")
    if kind not in _ARRIVALS or bool(colon) != (kind in ("gamma", "weibull")):
        expected = "poisson, even, gamma:CV or weibull:CV"
        raise ConfigError("--arrivals", arguments.arrivals, expected)
    require_range("--shared-prefix-ratio", arguments.shared_prefix_ratio, 0.0, 1.0)
    spelled = [
        f"rate={rate:.12f}".rstrip("0").rstrip("."),
        f"arrivals={kind}",
        *([f"cv={cv}"] if colon else []),
        f"prompt={arguments.prompt_tokens}",
        f"output={arguments.output_tokens}",
        f"requests={arguments.requests or _ENDLESS}",
    ]
    try:
        config = parse_synthetic(",".join(spelled), seed=arguments.seed)
    except ConfigError as error:
        raise error.named(_OF_RATE.get(error.key.partition(".")[0], error.key)) from None
    lengths = f"{arguments.prompt_tokens} + {arguments.output_tokens} tokens"
    if arguments.concurrency is not None:
        name = f"{arguments.concurrency} client{'s' * (arguments.concurrency > 1)}, {lengths}"
    elif arguments.ramp is not None:
        name = f"ramp {arguments.ramp} of {kind} arrivals, {lengths}"
    else:
        name = f"{rate:g}/s {arguments.arrivals}, {lengths}"
    facts = {
        "rate_rps": arguments.rate,
        "arrivals": arguments.arrivals,
        "prompt_tokens": arguments.prompt_tokens,
        "output_tokens": arguments.output_tokens,
        "shared_prefix_ratio": arguments.shared_prefix_ratio,
    }
    return BenchWorkload(
        name=name,
        make=lambda: generate(config),
        is_trace=False,
        count=arguments.requests,
        facts=facts,
    )


def _rate(arguments: LoadArguments) -> float:
    """Requests per second of the plan; of a ramp, and of a closed loop, 1."""
    if arguments.concurrency is not None or arguments.ramp is not None:
        if arguments.rate is not None:
            other = "--ramp" if arguments.concurrency is None else "--concurrency"
            raise ConfigError("--rate", arguments.rate, f"either --rate or {other}")
        return 1.0
    if arguments.rate is None:
        expected = "a rate, or --trace, --ramp or --concurrency: what is to be sent"
        raise ConfigError("--rate", None, expected)
    require_positive("--rate", arguments.rate, "requests per second")
    return arguments.rate
