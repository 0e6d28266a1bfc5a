"""Ray: the simulations of a plan on a Ray cluster, or on one that is started here for them."""

from __future__ import annotations

import importlib
import os
import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from mileage.cli.plan_workers import OnDone, counted
from mileage.core.errors import ConfigError
from mileage.planner.evaluator import Evaluator
from mileage.planner.figures import Figures
from mileage.planner.search import Evaluate, Task

__all__ = ["ray_workers"]

_ADDRESS: Final = "RAY_ADDRESS"
_LOCAL: Final[dict[str, Any]] = {
    "address": "local",
    "include_dashboard": False,
    "_node_ip_address": "127.0.0.1",
}
_PLACE: Final = re.compile(r"(?:ray://)?([^/:\s]+):(\d{1,5})")
_REACH_S: Final = 5.0


class _Worker:
    """In a process of the cluster: a copy of the evaluator, with the step tables it has made."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator

    def one(self, task: Task) -> Figures:
        """Of one simulation."""
        return self._evaluator.one(task)


@contextmanager
def ray_workers(evaluator: Evaluator, address: str | None, on_done: OnDone) -> Iterator[Evaluate]:
    """What does the simulations of a search on all cores of the cluster at `address`.

    None: the one that RAY_ADDRESS names, else one on this machine that ends with the search. Every
    node needs the same version of this package. Raises ConfigError without ray, and for a cluster
    that is not there.
    """
    try:
        ray: Any = importlib.import_module("ray")
        pools: Any = importlib.import_module("ray.util")
    except ImportError:
        raise ConfigError("--on", "ray", "ray: pip install 'mileage[ray]'") from None
    # Nobody is told that this cluster was here.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ours = not ray.is_initialized()
    if ours:
        _join(ray, address or os.environ.get(_ADDRESS))
    try:
        count = max(1, int(ray.cluster_resources().get("CPU", 1)))
        shared = ray.put(evaluator)
        remote = ray.remote(num_cpus=1)(_Worker)
        pool = pools.ActorPool([remote.remote(shared) for _ in range(count)])

        def evaluate(tasks: Sequence[Task]) -> list[Figures]:
            found = pool.map(lambda worker, task: worker.one.remote(task), tasks)
            return counted(found, len(tasks), on_done)

        yield evaluate
    finally:
        if ours:
            ray.shutdown()


def _join(ray: Any, address: str | None) -> None:
    options = _LOCAL if address is None else {"address": address}
    try:
        if address is not None and (place := _PLACE.fullmatch(address)) is not None:
            # Ray itself tries for minutes, and ends the process.
            with socket.create_connection((place[1], int(place[2])), _REACH_S):
                pass
        ray.init(log_to_driver=False, **options)
    except (RuntimeError, ValueError, OverflowError, OSError) as error:
        reason = str(error).partition("\n")[0]
        expected = f"a Ray cluster that can be reached ({reason})"
        raise ConfigError("--on", f"ray={address}" if address else "ray", expected) from None
