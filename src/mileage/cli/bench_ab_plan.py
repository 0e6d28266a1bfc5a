"""AbPlan: what the options of `mileage bench ab` mean: its arms, slots, looks and switch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, get_args

import msgspec

from mileage.cli.bench_ab_arguments import AbArguments
from mileage.cli.bench_admin import admin_token
from mileage.cli.bench_setup import price_of, run_options, targets_of
from mileage.cli.bench_target import bearer_of, url_of
from mileage.core.bounds import require_range
from mileage.core.errors import ConfigError
from mileage.core.slo import Slo
from mileage.loadgen.arms_result import Sharing, deciding_metrics
from mileage.loadgen.arms_slots import Arm, Mode
from mileage.loadgen.arms_switch import ArmSwitch, CommandSwitch, ControlSwitch
from mileage.loadgen.run_options import RunOptions
from mileage.measure.comparison import BLOCKS_MIN
from mileage.measure.sequential import SequentialPlan
from mileage.scrape.server_use import UseOptions
from mileage.scrape.server_use_process import is_local
from mileage.wire.url import origin
from mileage.workload.synthetic.spelling import seconds_of

__all__ = ["AbArm", "AbPlan", "ab_plan", "settings_of"]

_OF_ONE_RUN: Final = {"--duration": "--slot, --max-duration", "--warmup": "--wash-out"}
_FIRST_LOOK: Final = 8
_PAIRS_CLOSED: Final = 200
_PER_CLIENT: Final = 20
_WASH_OUT_S: Final = 5.0


class AbArm(msgspec.Struct, frozen=True, kw_only=True):
    """An arm: where it is, what lets us in, and what it costs."""

    url: str
    authorization: str | None = None
    use: UseOptions
    usd_per_hour: float | None = None
    settings: dict[str, Any] = {}
    """What makes it this arm, for a document."""


class AbPlan(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known before anything is sent."""

    a: AbArm
    b: AbArm
    mode: Mode
    sharing: Sharing
    slot_s: float
    load: RunOptions
    """Of a slot."""
    slot_requests: int | None
    """Of a closed loop."""
    wash_out_requests: int
    """Of these, at the beginning; 0: the wash-out is a time, of `load`."""
    duration_max_s: float
    plan: SequentialPlan
    metrics: tuple[str, ...]
    slo: Slo
    effect_ratio: float
    power: float
    share_cache: bool
    ready_timeout_s: float
    switch: ArmSwitch | None

    def arm(self, name: Arm) -> AbArm:
        """The arm of this name."""
        return self.a if name == "a" else self.b


def ab_plan(arguments: AbArguments) -> AbPlan:
    """What the options mean. Raises ConfigError, which names the option."""
    _refuse_others(arguments)
    urls = url_of(arguments.a, "A"), url_of(arguments.b or arguments.a, "B")
    sharing = _sharing(*urls)
    switch = _switch(arguments, is_one=sharing == "endpoint")
    closed = arguments.concurrency is not None
    mode = _mode(arguments.mode, sharing, is_alone=switch is not None, closed=closed)
    slot_s = seconds_of("--slot", arguments.slot)
    wash_out_s = _wash_out_s(arguments, slot_s)
    slot_requests = _slot_requests(arguments)
    base = run_options(arguments, is_trace=arguments.trace is not None)
    load = msgspec.structs.replace(
        base, warmup_s=wash_out_s, duration_s=None if closed else slot_s - wash_out_s
    )
    duration_max_s = seconds_of("--max-duration", arguments.max_duration)
    pairs_max = _PAIRS_CLOSED if closed else int(duration_max_s / _pair_s(mode, slot_s))
    if pairs_max < BLOCKS_MIN:
        least_s = BLOCKS_MIN * _pair_s(mode, slot_s)
        expected = f"at least {BLOCKS_MIN} pairs of slots: {least_s:g}s, or a shorter --slot"
        raise ConfigError("--max-duration", arguments.max_duration, expected)
    require_range("--effect", arguments.effect, 1e-4, 1.0)
    require_range("--power", arguments.power, 0.5, 0.999)
    require_range("--alpha", arguments.alpha, 1e-4, 0.5)
    slo, config = targets_of(arguments)
    price = price_of(arguments, config)
    return AbPlan(
        a=_arm(arguments, "a", urls[0], price),
        b=_arm(arguments, "b", urls[1], price),
        mode=mode,
        sharing=sharing,
        slot_s=slot_s,
        load=load,
        slot_requests=slot_requests,
        wash_out_requests=_wash_out_requests(arguments, slot_requests),
        duration_max_s=duration_max_s,
        plan=SequentialPlan(
            blocks_max=pairs_max,
            blocks_first=min(_FIRST_LOOK, pairs_max),
            alpha=arguments.alpha,
            margin_ratio=arguments.effect,
        ),
        metrics=deciding_metrics(arguments.metric or ()),
        slo=slo,
        effect_ratio=arguments.effect,
        power=arguments.power,
        share_cache=sharing == "endpoint" and not arguments.same_prompts,
        ready_timeout_s=seconds_of("--ready-timeout", arguments.ready_timeout),
        switch=switch,
    )


def settings_of(texts: Sequence[str], key: str) -> dict[str, Any]:
    """Settings of SECTION.KEY=VALUE by name; a value is JSON, else a text. Raises ConfigError."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (equals and "." in name.strip(".")):
            raise ConfigError(key, text, "SECTION.KEY=VALUE, such as governor.mode=off")
        try:
            found[name] = msgspec.json.decode(value)
        except (msgspec.MsgspecError, RecursionError):
            found[name] = value
    return found


def _refuse_others(arguments: AbArguments) -> None:
    """Options of one run that slots have others for."""
    given = {
        "--duration": arguments.duration,
        "--warmup": arguments.warmup,
        "--ramp": arguments.ramp,
    }
    for name, value in given.items():
        if value is not None:
            expected = f"none here: {_OF_ONE_RUN.get(name, 'the same load in every slot')}"
            raise ConfigError(name, value, expected)
    if arguments.slot_requests is not None and arguments.concurrency is None:
        raise ConfigError("--slot-requests", arguments.slot_requests, "--concurrency")


def _wash_out_s(arguments: AbArguments, slot_s: float) -> float:
    given = arguments.wash_out
    if arguments.concurrency is not None:
        if given is not None:
            expected = "none here: in a closed loop it is the first tenth of --slot-requests"
            raise ConfigError("--wash-out", given, expected)
        return 0.0
    wash_out_s = (
        min(_WASH_OUT_S, slot_s / 6.0) if given is None else seconds_of("--wash-out", given)
    )
    if not 0.0 <= wash_out_s < slot_s:
        raise ConfigError("--wash-out", given, f"less than --slot {arguments.slot}")
    return wash_out_s


def _slot_requests(arguments: AbArguments) -> int | None:
    clients, given = arguments.concurrency, arguments.slot_requests
    if clients is None:
        return None
    if given is not None and given < 2 * clients:
        raise ConfigError("--slot-requests", given, f"at least 2 for each client: {2 * clients}")
    return given or _PER_CLIENT * clients


def _wash_out_requests(arguments: AbArguments, slot_requests: int | None) -> int:
    """The first tenth, and at least the first of each client: all of them leave at once."""
    if arguments.concurrency is None or slot_requests is None:
        return 0
    return max(arguments.concurrency, slot_requests // 10)


def _pair_s(mode: Mode, slot_s: float) -> float:
    return slot_s if mode == "mirrored" else 2.0 * slot_s


def _sharing(a: str, b: str) -> Sharing:
    if a == b:
        return "endpoint"
    hosts = {origin(url)[1] for url in (a, b)}
    return "machine" if len(hosts) == 1 or all(map(is_local, (a, b))) else "nothing"


def _mode(text: str, sharing: Sharing, *, is_alone: bool, closed: bool) -> Mode:
    """`is_alone`: settings are switched, so that one arm is there at a time."""
    if text == "auto":
        fit = sharing == "nothing" and not is_alone and not closed
        return "mirrored" if fit else "interleaved"
    if text not in get_args(Mode):
        raise ConfigError("--mode", text, f"one of auto, {', '.join(get_args(Mode))}")
    if text == "mirrored" and closed:
        expected = "--rate or --trace: clients that wait for both arms go at the slower one's pace"
        raise ConfigError("--mode", text, expected)
    if text == "mirrored" and (is_alone or sharing == "endpoint"):
        raise ConfigError("--mode", text, "two endpoints: one cannot be of two settings at once")
    return "mirrored" if text == "mirrored" else "interleaved"


def _switch(arguments: AbArguments, *, is_one: bool) -> ArmSwitch | None:
    commands: dict[Arm, str] = {}
    if arguments.command_a is not None:
        commands["a"] = arguments.command_a
    if arguments.command_b is not None:
        commands["b"] = arguments.command_b
    settings: dict[Arm, dict[str, Any]] = {
        "a": settings_of(arguments.set_a or (), "--set-a"),
        "b": settings_of(arguments.set_b or (), "--set-b"),
    }
    ready_s = seconds_of("--ready-timeout", arguments.ready_timeout)
    if any(settings.values()):
        if commands:
            raise ConfigError("--command-a", "given", "either commands or --set-a, --set-b")
        if settings["a"] == settings["b"]:
            raise ConfigError("--set-b", arguments.set_b, "something else than --set-a")
        token = admin_token(arguments.admin_token_env, arguments.admin_token_file)
        return ControlSwitch(
            url_of(arguments.admin_url, "--admin-url"),
            token,
            settings,
            renewed=True,
        )
    if commands or arguments.command_end is not None:
        return CommandSwitch(commands, end=arguments.command_end, timeout_s=ready_s)
    if is_one and arguments.b is None:
        expected = "a second endpoint, or two settings of the first: --set-a, --command-a"
        raise ConfigError("B", None, expected)
    return None


def _arm(arguments: AbArguments, arm: Arm, url: str, price: float | None) -> AbArm:
    is_b = arm == "b"
    variable = (arguments.api_key_env_b if is_b else None) or arguments.api_key_env
    file = arguments.api_key_file if variable == arguments.api_key_env else None
    authorization = bearer_of(variable, file, url)
    gpu_ids = (arguments.gpu_id_b if is_b else None) or arguments.gpu_id
    engines = (arguments.engine_url_b if is_b else None) or arguments.engine_url
    if is_b and arguments.price_b is not None:
        require_range("--price-b", arguments.price_b, 0.0, 1e6)
        price = arguments.price_b
    gpus = (arguments.gpus_b if is_b else None) or arguments.gpus
    changed = arguments.set_b if is_b else arguments.set_a
    command = arguments.command_b if is_b else arguments.command_a
    return AbArm(
        url=url,
        authorization=authorization,
        use=UseOptions(
            url=url,
            authorization=authorization,
            engine_urls=tuple(engines or ()),
            dcgm_url=arguments.dcgm_url,
            gpu_ids=None if gpu_ids is None else tuple(gpu_ids),
        ),
        usd_per_hour=None if price is None else price * gpus,
        settings=settings_of(changed or (), f"--set-{arm}")
        | ({"command": command} if command is not None else {}),
    )
