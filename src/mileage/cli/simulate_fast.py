"""Chooses between the two ways to simulate: the gateway's own objects, or compiled code."""

from __future__ import annotations

from typing import Any, Final

from rich.console import Console

from mileage.cli.simulate_scenario import Arm, Scenario
from mileage.cli.simulate_workload import Workload
from mileage.control.config import ControlConfig, GovernorConfig
from mileage.core.errors import ConfigError
from mileage.sim.fast.entry import entry
from mileage.sim.fast.run import run_fast
from mileage.sim.fast.support import supports, unsupported
from mileage.sim.simulation import SimResult
from mileage.workload.columns import columns_of

__all__ = ["fast_refusal", "prepare", "run_compiled"]

_WORTH_COMPILING: Final = 250_000
"""Requests, of all arms: fewer are simulated in Python before the compiler is done."""
_WORTH_LOADING: Final = 2_000
"""Requests: fewer are simulated in Python before the compiled code is loaded."""


def fast_refusal(scenario: Scenario, arm: Arm, work: Workload) -> str | None:
    """Why an arm is not to be simulated by compiled code; None: it is. For paths but python's.

    Raises ConfigError where that was asked for and cannot be.
    """
    why = supports(arm.fleet.specs, scenario.control_of(arm), scenario.sim) or work.not_plain
    if why is None and work.count is not None:
        columns = work.columns(1.0)
        why = unsupported(columns, arm.fleet.specs, scenario.control_of(arm), scenario.sim)
    if scenario.path == "fast":
        if why is not None:
            raise ConfigError("--path", "fast", f"python: {why}")
        return None
    if why is not None:
        return why
    count = len(work.held)
    if count < _WORTH_LOADING:
        return "too few requests to be worth it"
    if count * len(scenario.arms) < _WORTH_COMPILING and not _is_compiled():
        return "too few requests to be worth compiling it (--path fast does it, once)"
    return None


def prepare(arm: Arm, work: Workload, console: Console) -> None:
    """Have the compiled code at hand: compiled, or loaded, with the shortest of all traces."""
    dispatcher: Any = entry()
    if getattr(dispatcher, "signatures", None):
        return
    if _is_compiled():
        _run_shortest(arm, work)
        return
    place = _place()
    kept = "not kept: set NUMBA_CACHE_DIR" if place is None else f"kept in {place}"
    text = "compiling the fast path: once, about a minute"
    console.print(f"{text} ({kept})", markup=False, soft_wrap=True)
    with console.status(text):  # on a terminal; it turns while the compiler lets it
        try:
            _run_shortest(arm, work)
        except OSError as error:
            # It is compiled, and was to be kept.
            reason = error.strerror or error
            console.print(f"the compiled code is not kept: {reason}", markup=False)


def _run_shortest(arm: Arm, work: Workload) -> None:
    alone = GovernorConfig(mode="off")
    run_fast(columns_of(work.held[:1]), arm.fleet.specs, ControlConfig(governor=alone))


def run_compiled(scenario: Scenario, arm: Arm, work: Workload, *, rate_scale: float) -> SimResult:
    """Simulate the arm by compiled code. Raises TraceError, and ConfigError where a request turns
    up that it cannot take."""
    columns = work.columns(rate_scale)
    if work.not_plain is not None:
        raise ConfigError("--path", scenario.path, f"python: {work.not_plain}")
    return run_fast(columns, arm.fleet.specs, scenario.control_of(arm), scenario.sim)


def _is_compiled() -> bool:
    """Whether the code as it is now was compiled by an earlier run, and kept; where that cannot be
    told: no. What is kept of other versions of it does not count."""
    dispatcher: Any = entry()
    if getattr(dispatcher, "signatures", None):
        return True
    try:
        store = dispatcher._cache
        _, *version = store._index_key(None, dispatcher.targetctx.codegen())
        return any(list(key[1:]) == version for key in store._cache_file._load_index())
    except (AttributeError, OSError):
        return False


def _place() -> str | None:
    """The directory that compiled code is kept in; None: there is none that can be written."""
    return getattr(getattr(entry(), "_cache", None), "cache_path", None)
