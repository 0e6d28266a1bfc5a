"""run_sweep(): every point of a sweep in its passes, and what came of each run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace
from rich.console import Console

from mileage.cli.bench_arguments import LoadArguments
from mileage.cli.bench_document import bench_document
from mileage.cli.bench_measure import Beside, measure
from mileage.cli.bench_prepare import Prepared, prepare
from mileage.cli.bench_setup import run_options
from mileage.cli.bench_sweep_points import SweepPoint, load_of
from mileage.cli.bench_sweep_settings import Settings
from mileage.cli.bench_workload import workload_of
from mileage.core.errors import EngineError
from mileage.scrape.server_use import UseOptions

__all__ = ["SweepRuns", "run_sweep"]

_SEED_STEP: Final = 7919
"""Between runs: none finds the prompts of another in the endpoint's cache."""


class SweepRuns(msgspec.Struct, kw_only=True):
    """Documents of the runs by point, as `mileage bench --json` prints them."""

    documents: list[list[dict[str, Any]]]
    faults: dict[str, str]
    """By value: why it could not be put in force."""
    interrupted: bool = False
    restored: str | None = None
    """Why the settings could not be put back; None: they were, or there was nothing to."""


async def run_sweep(
    arguments: LoadArguments,
    points: Sequence[SweepPoint],
    orders: Sequence[Sequence[int]],
    settings: Settings,
    *,
    authorization: str | None,
    beside: Beside,
    say: Callable[[str], None],
) -> SweepRuns:
    """Run the points in these orders. A setting that cannot be put in force costs its points, and
    an endpoint that does not answer ends the sweep where nothing can be changed about it.

    Raises ConfigError for options that cannot be, and EngineError for such an endpoint.
    """
    runs = SweepRuns(documents=[[] for _ in points], faults={})
    endpoints: dict[str | None, Prepared] = {}
    in_force: tuple[str | None, str] | None = None
    number, total = 0, sum(len(order) for order in orders)
    try:
        for index in (index for order in orders for index in order):
            point, number = points[index], number + 1
            if point.value is not None and point.value in runs.faults:
                continue
            if in_force is None or in_force[0] != point.value:
                try:
                    in_force = point.value, await settings.to(point.value)
                except EngineError as error:
                    if point.value is None:
                        raise
                    runs.faults[point.value], in_force = str(error), None
                    continue
            load = load_of(
                arguments,
                concurrency=point.concurrency,
                rate=point.rate,
                rate_scale=1.0 if point.rate_scale is None else point.rate_scale,
                seed=arguments.seed + _SEED_STEP * number,
            )
            say(f"{number} of {total}: {point.label}")
            prepared = await _prepared(endpoints, point.value, in_force[1], load, authorization)
            if prepared.doubt is not None and point.value is None:
                raise EngineError(prepared.endpoint.shown, _without_name(prepared))
            use = UseOptions(url=in_force[1], authorization=authorization)
            done = await measure(
                prepared,
                run_options(load, is_trace=load.trace is not None),
                replace(beside, use=use, metrics_url=f"{in_force[1]}/metrics"),
            )
            if done.interrupted:
                runs.interrupted = True
                break
            runs.documents[index].append(bench_document(done, done.figures()))
    finally:
        try:
            await settings.restore()
        except EngineError as error:
            runs.restored = str(error)
    return runs


async def _prepared(
    known: dict[str | None, Prepared],
    value: str | None,
    url: str,
    load: LoadArguments,
    authorization: str | None,
) -> Prepared:
    """The endpoint is looked at once for each value; the load is made for each run."""
    workload = workload_of(load, Console(stderr=True, highlight=False, quiet=True))
    found = known.get(value)
    if found is None or found.target.url != url or found.doubt is not None:
        found = await prepare(load, url, workload, authorization=authorization)
        known[value] = found
    return replace(found, workload=workload, plan=replace(found.plan, seed=load.seed))


def _without_name(prepared: Prepared) -> str:
    assert prepared.doubt is not None
    return prepared.doubt.removeprefix(f"{prepared.endpoint.shown}: ")
