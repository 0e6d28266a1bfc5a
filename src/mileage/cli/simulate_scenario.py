"""What the options of `mileage simulate` ask for: fleets, policies, targets, and the rest."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec.structs import replace

from mileage.cli.config import load_config
from mileage.cli.simulate_arguments import RunArguments
from mileage.cli.simulate_features import PLAIN, features_of
from mileage.cli.simulate_fitted import fitted_fleet, is_fitted
from mileage.cli.simulate_fleet import Fleet, fleet_of
from mileage.cli.simulate_policy import PolicyChoice, policy_choice, slo_of
from mileage.control.config import ControlConfig
from mileage.core.bounds import require_range
from mileage.core.errors import ConfigError
from mileage.core.slo import Slo
from mileage.sim.simulation import SimConfig
from mileage.workload.synthetic.spelling import seconds_of

__all__ = ["Arm", "Scenario", "scenario_of"]

_ARMS_MAX: Final = 24
_PATHS: Final = ("auto", "fast", "python")
_GAPS: Final = ("p99", "mean")
_ROUTING: Final = {"affinity": True, "load": False}


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """One simulation of several: a fleet under a policy, and the name that tells it from others."""

    name: str
    fleet: Fleet
    policy: PolicyChoice


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """All arms, and what they have in common."""

    arms: tuple[Arm, ...]
    control: ControlConfig
    sim: SimConfig
    path: str
    gaps: str
    config_path: str | None

    @property
    def slo(self) -> Slo:
        """The targets of the simulated model."""
        return self.control.slo.of(self.arms[0].fleet.model)

    @property
    def has_target(self) -> bool:
        """Whether there is anything to meet."""
        return self.slo.ttft_s is not None or self.slo.itl_s is not None

    def control_of(self, arm: Arm) -> ControlConfig:
        """What the controller of that arm is told."""
        return replace(self.control, governor=arm.policy.governor)


def scenario_of(
    arguments: RunArguments, *, several: bool = False, needs_slo: bool = False
) -> Scenario:
    """Check all options and make of them what they ask for. Raises ConfigError by option or key.

    `several`: GPU, tensor parallelism and policy may be lists; each with each is an arm.
    `needs_slo`: it is an error that there is no target.
    """
    for key, value, known in (
        ("--path", arguments.path, _PATHS),
        ("--gaps", arguments.gaps, _GAPS),
    ):
        if value not in known:
            raise ConfigError(key, value, f"one of {', '.join(known)}")
    require_range("--rate-scale", arguments.rate_scale, 1e-6, 1e6)
    control = _control(arguments)
    fleets = _fleets(arguments, control, several=several)
    spelled = _listed("--policy", arguments.policy, several) or [None]
    policies = [policy_choice(text, control.governor) for text in spelled]
    arms = [
        Arm(name=_arm_name(f, p, fleets, policies), fleet=f, policy=p)
        for f in fleets
        for p in policies
    ]
    if len(arms) > _ARMS_MAX:
        raise ConfigError("--policy", len(arms), f"at most {_ARMS_MAX} simulations at a time")
    twice = [arm.name for arm in arms if sum(arm.name == other.name for other in arms) > 1]
    if twice:
        raise ConfigError("--policy", twice[0], "each only once")
    scenario = Scenario(
        arms=tuple(arms),
        control=control,
        sim=_sim(arguments, fleets[0]),
        path=arguments.path,
        gaps=arguments.gaps,
        config_path=None if arguments.config is None else str(arguments.config),
    )
    _check_limits(scenario)
    _check_targets(scenario, needs_slo=needs_slo)
    return scenario


def _sim(arguments: RunArguments, fleet: Fleet) -> SimConfig:
    patience = arguments.patience
    try:
        return SimConfig(
            seed=arguments.seed,
            patience_s=None if patience is None else seconds_of("--patience", patience),
            scaling=fleet.scaling,
        )
    except ConfigError as error:
        key = "--patience" if error.key == "sim.patience_s" else error.key
        raise ConfigError(key, patience, error.expected) from None


def _fleets(arguments: RunArguments, control: ControlConfig, *, several: bool) -> list[Fleet]:
    variants, costs, slo = features_of(arguments, variants=several), control.costs, control.slo
    if is_fitted(arguments.engine):
        return [fitted_fleet(arguments, each, costs, slo) for each in variants]
    if arguments.model is None:
        raise ConfigError("--model", None, "a model, such as llama-3.1-8b")
    gpus = _listed("--gpu", arguments.gpu, several)
    if not gpus:
        raise ConfigError("--gpu", None, "a GPU, such as h100")
    parallel = [_count(text) for text in _listed("--tp", arguments.tp, several)]
    if len(set(parallel)) < len(parallel):
        raise ConfigError("--tp", arguments.tp, "each only once")
    fleets = [
        fleet_of(arguments, str(gpu), tp, each, costs, slo)
        for gpu in gpus
        for tp in parallel
        for each in variants
    ]
    if len({fleet.gpu for fleet in fleets}) < len(gpus):
        raise ConfigError("--gpu", arguments.gpu, "each only once")
    return fleets


def _control(arguments: RunArguments) -> ControlConfig:
    config = load_config(arguments.config, {})
    control = config.control()
    changes: dict[str, Any] = {"replica_running_max": {}, "replica_gpus": {}}
    if arguments.slo is not None:
        changes["slo"] = slo_of(arguments.slo)
    if arguments.routing is not None:
        if arguments.routing not in _ROUTING:
            raise ConfigError("--routing", arguments.routing, f"one of {', '.join(_ROUTING)}")
        affinity = _ROUTING[arguments.routing]
        changes["routing"] = replace(control.routing, affinity=affinity)
    return replace(control, **changes)


def _listed(key: str, text: str | None, several: bool) -> list[Any]:
    """The items of a list separated by commas; of one where only one may be."""
    if text is None:
        return []
    items = [item.strip() for item in text.split(",")]
    if not all(items):
        raise ConfigError(key, text, "names separated by commas, none of them empty")
    if not several and len(items) > 1:
        raise ConfigError(key, text, "one; several are for `mileage simulate compare`")
    return items


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:5]) <= 4096):
        raise ConfigError("--tp", text, "a number of GPUs, 1 to 4096")
    return int(text)


def _arm_name(
    fleet: Fleet, policy: PolicyChoice, fleets: list[Fleet], policies: list[PolicyChoice]
) -> str:
    """What differs between the arms."""
    names = []
    if len(fleets) > 1:
        gpus = {(each.gpu, each.layout.get("tensor_parallel")) for each in fleets}
        names.append(fleet.name if len(gpus) > 1 else fleet.variant or PLAIN)
    if len(policies) > 1 or not names:
        names.append(policy.name)
    return " ".join(names)


def _check_limits(scenario: Scenario) -> None:
    for arm in scenario.arms:
        governor, most = arm.policy.governor, arm.fleet.engine.running_max
        limit = governor.static.limit
        if governor.mode == "act" and governor.policy == "static" and (limit or 0) > most:
            expected = f"at most {most}, as many as an engine of {arm.fleet.name} runs at once"
            raise ConfigError("--policy", arm.policy.name, f"{expected} (--engine-max-seqs)")


def _check_targets(scenario: Scenario, *, needs_slo: bool) -> None:
    """Refuse targets that no request can meet, whatever the policy."""
    slo = scenario.slo
    if needs_slo and not scenario.has_target:
        raise ConfigError("--slo", None, "a target to keep, such as ttft=2s,itl=60ms")
    fleets = {arm.fleet.name: arm.fleet for arm in scenario.arms}.values()
    for name, target_s, least_s in (
        ("ttft", slo.ttft_s, min(fleet.table.step_s(0, 0, 1, 1.0) for fleet in fleets)),
        ("itl", slo.itl_s, min(fleet.table.step_s(1, 1) for fleet in fleets)),
    ):
        if target_s is not None and target_s < least_s:
            where = ", ".join(fleet.name for fleet in fleets)
            model = scenario.arms[0].fleet.model
            expected = (
                f"at least {least_s * 1e3:.2f} ms: the shortest step of {model} on {where} takes "
                "that long"
            )
            raise ConfigError("--slo", f"{name}={target_s * 1e3:g}ms", expected)
