"""What the options of `mileage bench` mean for its load: how calls are made, and how sent."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeVar, get_args

import msgspec
from msgspec.structs import replace

from mileage.cli.bench_arguments import LoadArguments
from mileage.cli.bench_target import headers_of, tenant_keys
from mileage.cli.bench_workload import BenchWorkload, warmup_of
from mileage.cli.config import Config, load_config
from mileage.cli.simulate_policy import slo_of
from mileage.core.bounds import require_range
from mileage.core.errors import ConfigError
from mileage.core.request import Endpoint as EndpointKind
from mileage.core.slo import Slo
from mileage.loadgen.plan import planned_calls
from mileage.loadgen.plan_options import PlanOptions, PlanTally
from mileage.loadgen.planned_call import PlannedCall
from mileage.loadgen.run_options import Ramp, RunOptions
from mileage.loadgen.server_kind import ServerKind
from mileage.loadgen.token_lengths import LengthTable
from mileage.workload.synthetic.spelling import seconds_of

__all__ = ["calls_of", "endpoint_kind", "plan_options", "price_of", "run_options", "targets_of"]

T = TypeVar("T")

_DURATION_S: Final = 30.0
_WARMUP_SEED: Final = 0x5EED
"""What the seed of the warm-up's text differs by."""
_PRICE_MAX_USD: Final = 1e6
_KINDS: Final = ("chat", "completions", "embeddings", "responses", "messages")
_NAMES: Final = {
    "concurrency": "--concurrency",
    "think_s": "--think",
    "ramp": "--ramp",
    "ramp.start": "--ramp",
    "ramp.end": "--ramp",
    "ramp.over_s": "--ramp",
    "warmup_s": "--warmup",
    "duration_s": "--duration",
    "drain_s": "--drain",
    "connections_max": "--connections",
    "connect_timeout_s": "--connect-timeout",
    "response_timeout_s": "--timeout",
    "silence_max_s": "--give-up",
    "retries": "--retries",
    "model": "--model",
    "endpoint": "--endpoint",
    "shared_prefix_ratio": "--shared-prefix-ratio",
    "cancel_ratio": "--cancel-ratio",
    "cancel_after_s": "--cancel-after",
    "fields": "--body-field",
    "headers": "--header",
    "tenant_header": "--tenant-header",
    "tenant_keys": "--tenant-key",
}


def run_options(arguments: LoadArguments, *, is_trace: bool) -> RunOptions:
    """How calls are sent. Raises ConfigError by option."""
    closed = arguments.concurrency is not None
    duration_s: float | None = None
    if arguments.duration is not None:
        duration_s = seconds_of("--duration", arguments.duration)
    elif not is_trace and arguments.requests is None:
        duration_s = _DURATION_S
    return _named(
        lambda: RunOptions(
            mode="closed" if closed else "open",
            concurrency=arguments.concurrency if arguments.ramp is None else None,
            think_s=seconds_of("--think", arguments.think),
            ramp=None if arguments.ramp is None else ramp_of(arguments.ramp),
            warmup_s=warmup_of(arguments),
            duration_s=duration_s,
            drain_s=seconds_of("--drain", arguments.drain),
            connections_max=arguments.connections,
            connect_timeout_s=seconds_of("--connect-timeout", arguments.connect_timeout),
            response_timeout_s=seconds_of("--timeout", arguments.timeout),
            silence_max_s=seconds_of("--give-up", arguments.give_up),
            retries=arguments.retries,
        )
    )


def ramp_of(text: str) -> Ramp:
    """START:END:TIME. Raises ConfigError."""
    parts = text.split(":")
    try:
        start, end, over = parts
        return Ramp(start=float(start), end=float(end), over_s=seconds_of("--ramp", over))
    except ValueError:
        raise ConfigError("--ramp", text, "START:END:TIME, such as 1:8:60s") from None


def plan_options(
    arguments: LoadArguments,
    *,
    model: str,
    server: ServerKind = "openai",
    lengths: LengthTable | None = None,
) -> PlanOptions:
    """How calls are made. Raises ConfigError by option."""
    return _named(
        lambda: PlanOptions(
            model=model,
            keep_models=arguments.keep_models,
            seed=arguments.seed,
            lengths=lengths or LengthTable(),
            server=server,
            ignore_eos=arguments.ignore_eos,
            stream=arguments.stream,
            endpoint=endpoint_kind(arguments),
            shared_prefix_ratio=arguments.shared_prefix_ratio,
            tenant_keys=tenant_keys(arguments.tenant_key or ()),
            tenant_header=arguments.tenant_header,
            cancel_ratio=arguments.cancel_ratio,
            cancel_after_s=seconds_of("--cancel-after", arguments.cancel_after),
            fields=_fields(arguments.body_field or ()),
            headers=headers_of(arguments.header or ()),
        )
    )


def endpoint_kind(arguments: LoadArguments) -> EndpointKind | None:
    """The API that all requests go to; None: as the workload says. Raises ConfigError."""
    text = arguments.endpoint
    if text is None:
        return None
    if text not in get_args(EndpointKind):
        raise ConfigError("--endpoint", text, f"one of {', '.join(_KINDS)}")
    found: EndpointKind = text  # type: ignore[assignment]
    return found


def _fields(texts: Iterable[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise ConfigError("--body-field", text, "NAME=JSON, such as temperature=0.7")
        try:
            found[name] = msgspec.json.decode(value)
        except (msgspec.MsgspecError, RecursionError):
            found[name] = value  # a text without its quotes
    return found


def targets_of(arguments: LoadArguments) -> tuple[Slo, Config]:
    """The latency targets, and the configuration that they may be of. Raises ConfigError."""
    config = load_config(arguments.config, {})
    slo = config.slo.of(arguments.model or "")
    plain = Slo(ttft_s=slo.ttft_s, itl_s=slo.itl_s)
    if arguments.slo is None:
        return plain, config
    asked = slo_of(arguments.slo)
    return Slo(ttft_s=asked.ttft_s, itl_s=asked.itl_s), config


def price_of(arguments: LoadArguments, config: Config) -> float | None:
    """USD for an hour of one GPU; None where nobody tells. Raises ConfigError."""
    if arguments.price is not None:
        require_range("--price", arguments.price, 0.0, _PRICE_MAX_USD)
        return arguments.price
    return config.costs.usd_per_gpu_hour


def calls_of(
    workload: BenchWorkload, options: PlanOptions, warmup_s: float, tally: PlanTally
) -> Iterator[PlannedCall]:
    """Every call of a run, those of its warm-up first, made as they are asked for."""
    first, rest = workload.requests(warmup_s=warmup_s)
    other = replace(options, seed=options.seed ^ _WARMUP_SEED)
    calls = itertools.chain(planned_calls(first, other), planned_calls(rest, options, tally))
    for index, call in enumerate(calls):
        yield call if call.index == index else replace(call, index=index)


def _named(make: Callable[[], T]) -> T:
    """What `make` gives; an error of a key is told as of its option."""
    try:
        return make()
    except ConfigError as error:
        raise error.named(_NAMES.get(error.key, error.key)) from None
