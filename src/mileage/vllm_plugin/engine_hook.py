"""Calls observers before and after each step of vLLM's engine, without a scheduler of our own.

`EngineCore.step` (or the pipelined one) finds the engine at its first step; from then on the two
methods of its scheduler that begin and end every step are wrapped on that one object: `schedule`
and `update_from_output`. Both have been there in every version of the V1 engine.

An observer's exception never reaches the engine: it is logged once and the observer dropped. One
that changes something of the engine has a `give_up(reason)`, which is called then.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from mileage.vllm_plugin.failure import failure_of, log_failure

__all__ = ["CoreHook", "StepObserver", "install", "register", "unregister"]

_log = logging.getLogger("vllm.mileage")
_ATTRIBUTE: Final = "_mileage_hook"
_MARK: Final = "_mileage_wrapped"
_STEPS: Final = ("step", "step_with_batch_queue")
_IN_FLIGHT_MAX: Final = 64
"""Batches between schedule and output; an engine has a few, more were given up on the way."""


class StepObserver(Protocol):
    """What is told of each step, in the engine's own thread: it must be quick and never block.

    Where it has a `give_up(reason)`, that is called when the observer has failed, and is to leave
    the engine as it was started: nobody tells the observer of its steps any more.
    """

    def before_step(self, core: Any, now_s: float) -> None:
        """The engine is about to schedule: what is set now holds for this step. Monotonic time."""
        ...

    def after_step(
        self,
        core: Any,
        scheduler_output: Any,
        model_output: Any,
        started_ns: int,
        duration_ns: int,
        cpu_ns: int,
    ) -> None:
        """A step has ended, its output is in the scheduler; requests that ended are gone from it.

        `started_ns` is wall time. Steps of one engine never overlap: a pipelined one begins when
        the one before it has ended. `cpu_ns`: of the whole engine process in that time.
        """
        ...


_factories: dict[str, Callable[[Any], StepObserver]] = {}


def register(name: str, factory: Callable[[Any], StepObserver]) -> None:
    """Have `factory(core)` make an observer for each engine that takes its first step from now on.

    Observers are called in the order of registration; the same name again replaces the factory.
    """
    _factories[name] = factory


def unregister(name: str) -> None:
    """Forget the factory of that name; observers that it has made stay."""
    _factories.pop(name, None)


def install(engine_core: type) -> str | None:
    """Wrap the steps of the EngineCore class, once. Returns why that cannot be, or None."""
    names = [name for name in _STEPS if callable(getattr(engine_core, name, None))]
    if not names:
        return f"{engine_core.__name__} has no {' or '.join(_STEPS)}"
    for name in names:
        method = getattr(engine_core, name)
        if not hasattr(method, _MARK):
            setattr(engine_core, name, _finding(method))
    return None


def _finding(method: Callable[..., Any]) -> Callable[..., Any]:
    """The step method, after the engine's hook was made at its first call."""

    @functools.wraps(method)
    def step(core: Any, *args: Any, **kwargs: Any) -> Any:
        if _ATTRIBUTE not in core.__dict__:
            CoreHook.of(core)
        return method(core, *args, **kwargs)

    setattr(step, _MARK, True)
    return step


class CoreHook:
    """The observers of one EngineCore. `own_ns` is the time that they took, of the engine's."""

    def __init__(self, core: Any) -> None:
        self._core = core
        self._observers: dict[str, StepObserver] = {}
        self._failed: dict[str, StepObserver] = {}
        self._failures: dict[str, str] = {}
        self._begun: dict[int, tuple[int, int, int]] = {}
        self._ended_ns = 0
        self._ended_cpu_ns = 0
        self.steps_total = 0
        self.own_ns = 0
        self.why_not: str | None = None
        """Why steps cannot be seen; None where they are."""

    @classmethod
    def of(cls, core: Any) -> CoreHook:
        """The engine's hook, made and attached where it is not there yet. Never raises."""
        hook = core.__dict__.get(_ATTRIBUTE)
        if isinstance(hook, cls):
            return hook
        hook = cls(core)
        core.__dict__[_ATTRIBUTE] = hook
        try:
            hook._attach()
        except Exception as error:
            hook.why_not = f"{type(error).__name__}: {error}"
            _log.exception("mileage cannot see this engine's steps")
        return hook

    def observer(self, name: str) -> StepObserver | None:
        """The observer that was made under this name, unless it has failed."""
        return self._observers.get(name)

    def failed(self, name: str) -> StepObserver | None:
        """The observer that was made under this name and has failed: it has given up."""
        return self._failed.get(name)

    def failure(self, name: str) -> str | None:
        """Why there is no observer of this name that works; None where nothing failed."""
        return self._failures.get(name)

    def _attach(self) -> None:
        for name, factory in _factories.items():
            try:
                self._observers[name] = factory(self._core)
            except Exception as error:
                self._failures[name] = failure_of(error)
                _log.exception("mileage goes on without its observer %s", name)
        scheduler = self._core.scheduler
        schedule, update = scheduler.schedule, scheduler.update_from_output

        @functools.wraps(schedule)
        def begin(*args: Any, **kwargs: Any) -> Any:
            self._before()
            started = (time.time_ns(), time.perf_counter_ns(), time.process_time_ns())
            output = schedule(*args, **kwargs)
            if len(self._begun) >= _IN_FLIGHT_MAX:
                self._begun.clear()
            self._begun[id(output)] = started
            return output

        @functools.wraps(update)
        def end(scheduler_output: Any, model_output: Any, *args: Any, **kwargs: Any) -> Any:
            result = update(scheduler_output, model_output, *args, **kwargs)
            self._after(scheduler_output, model_output)
            return result

        scheduler.schedule, scheduler.update_from_output = begin, end

    def _before(self) -> None:
        entered_ns = time.perf_counter_ns()
        now_s = time.monotonic()
        for name, observer in tuple(self._observers.items()):
            try:
                observer.before_step(self._core, now_s)
            except Exception as error:
                self._drop(name, error)
        self.own_ns += time.perf_counter_ns() - entered_ns

    def _after(self, scheduler_output: Any, model_output: Any) -> None:
        ended_ns, cpu_ns = time.perf_counter_ns(), time.process_time_ns()
        begun = self._begun.pop(id(scheduler_output), None)
        if begun is None:
            return
        started_ns, from_ns, from_cpu_ns = begun
        # Pipelined steps overlap: the time until the one before ended was that one's.
        late_ns = max(0, self._ended_ns - from_ns)
        from_ns += late_ns
        from_cpu_ns = max(from_cpu_ns, self._ended_cpu_ns) if late_ns else from_cpu_ns
        self._ended_ns, self._ended_cpu_ns = ended_ns, cpu_ns
        self.steps_total += 1
        for name, observer in tuple(self._observers.items()):
            try:
                observer.after_step(
                    self._core,
                    scheduler_output,
                    model_output,
                    started_ns + late_ns,
                    ended_ns - from_ns,
                    cpu_ns - from_cpu_ns,
                )
            except Exception as error:
                self._drop(name, error)
        self.own_ns += time.perf_counter_ns() - ended_ns

    def _drop(self, name: str, error: Exception) -> None:
        observer = self._failed[name] = self._observers.pop(name)
        self._failures[name] = failure_of(error)
        log_failure(_log, f"observer {name} failed, the engine goes on without it", error)
        give_up = getattr(observer, "give_up", None)
        if callable(give_up):
            try:
                give_up(self._failures[name])
            except Exception as second:
                log_failure(_log, f"what observer {name} had set may stay", second)
