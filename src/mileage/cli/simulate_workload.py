"""The requests of a `--trace`, read as the options say, for one simulation or for several."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterable, Iterator

from msgspec.structs import replace
from rich.console import Console

from mileage.cli.progress import Steps
from mileage.cli.simulate_arguments import RunArguments
from mileage.cli.simulate_fitted import is_fitted, without_shared
from mileage.cli.trace_arguments import columns_of_options, read_options, trace_part, window_of
from mileage.cli.trace_source import OpenTrace, open_trace
from mileage.core.bounds import require_at_least
from mileage.core.errors import ConfigError
from mileage.workload.columns import TraceColumns, columns_of
from mileage.workload.synthetic.spelling import seconds_of
from mileage.workload.trace_request import TraceRequest
from mileage.workload.transforms import scale_rate

__all__ = ["Workload", "workload"]

_HELD_MAX = 200_000
"""Requests of a single run that are read before it begins, so that their number is known; the rest
is read as it goes, however many there are."""


class Workload:
    """What comes, at the trace's own rate."""

    def __init__(
        self,
        name: str,
        held: list[TraceRequest],
        rest: Iterator[TraceRequest] | None,
        read_s: float,
    ) -> None:
        self.name, self.held, self.read_s = name, held, read_s
        self._rest = rest
        self._columns: TraceColumns | None = None
        self._not_plain: str | None = None

    @property
    def count(self) -> int | None:
        """How many requests; None where they are not all read yet."""
        return len(self.held) if self._rest is None else None

    @property
    def not_plain(self) -> str | None:
        """What a request has that columns cannot hold, of those looked at so far; None: nothing."""
        if self._columns is None and self._not_plain is None:
            self._look_at(self.held)
        return self._not_plain

    def columns(self, rate_scale: float) -> TraceColumns:
        """All requests at `rate_scale` times the rate, in columns; see `not_plain`, too."""
        found = self._columns
        if found is None:
            whole = itertools.chain(self.held, self._looked_at(self._rest or ()))
            found = self._columns = columns_of(whole)
        if rate_scale == 1.0:
            return found
        return TraceColumns(
            arrived_s=found.arrived_s / rate_scale,
            prompt_tokens=found.prompt_tokens,
            output_tokens=found.output_tokens,
            offsets=found.offsets,
            blocks=found.blocks,
            block_tokens=found.block_tokens,
        )

    def _look_at(self, requests: Iterable[TraceRequest]) -> None:
        for _ in self._looked_at(requests):
            pass

    def _looked_at(self, requests: Iterable[TraceRequest]) -> Iterator[TraceRequest]:
        from mileage.sim.fast.support import not_in_columns  # takes its time: it has a compiler

        for request in requests:
            if self._not_plain is None and (field := not_in_columns(request)) is not None:
                self._not_plain = f"requests have {field}"
            yield request

    def at(self, rate_scale: float) -> Iterable[TraceRequest]:
        """All requests at `rate_scale` times the rate; of a trace that is not held, once."""
        whole: Iterable[TraceRequest] = self.held
        if self._rest is not None:
            whole = itertools.chain(self.held, self._rest)
        return whole if rate_scale == 1.0 else scale_rate(whole, rate_scale)


@contextlib.contextmanager
def workload(arguments: RunArguments, console: Console, *, once: bool) -> Iterator[Workload]:
    """The requests that the options mean; `once`: they are asked for one time only.

    Whatever model a request of the trace was for, it is for the simulated one. Raises ConfigError,
    also where no request is left, and TraceError with file and line.
    """
    if arguments.trace is None:
        raise ConfigError("--trace", None, "a trace, such as synthetic:rate=5,duration=10m")
    started_s = time.perf_counter()
    with contextlib.ExitStack() as stack:
        with Steps(console) as steps:
            opened = stack.enter_context(_opened(arguments, steps))
            requests = _of_one_model(opened)
            if is_fitted(arguments.engine):
                requests = without_shared(requests, arguments.engine)
            held = list(itertools.islice(requests, _HELD_MAX if once else None))
            following = next(requests, None)
        if not held:
            raise ConfigError("--trace", arguments.trace, "at least one request in that part of it")
        rest = None if following is None else itertools.chain((following,), requests)
        yield Workload(opened.name, held, rest, time.perf_counter() - started_s)


def _opened(arguments: RunArguments, steps: Steps) -> OpenTrace:
    options = read_options(
        format=arguments.format,
        columns=columns_of_options(arguments.columns or ()),
        time_unit=arguments.time_unit,
        keep_failed=arguments.keep_failed,
        spread=arguments.spread,
        spread_max_s=seconds_of("--spread-max", arguments.spread_max),
        seed=arguments.seed,
    )
    if arguments.requests is not None:
        require_at_least("--requests", arguments.requests, 1)
    part = trace_part(
        **window_of(arguments.window),
        head=arguments.requests,
        tenants=tuple(arguments.tenant or ()),
        seed=arguments.seed,
    )
    assert arguments.trace is not None
    return open_trace(arguments.trace, options=options, part=part, progress=steps, key="--trace")


def _of_one_model(requests: Iterable[TraceRequest]) -> Iterator[TraceRequest]:
    for request in requests:
        yield request if request.model is None else replace(request, model=None)
