"""Compares the compiled path of the simulator with the Python path, to the last bit."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from mileage.control.config import ControlConfig
from mileage.sim.engine_config import EngineConfig
from mileage.sim.fast.run import run_fast
from mileage.sim.node import ReplicaSpec
from mileage.sim.outcome import Outcomes
from mileage.sim.simulation import SimConfig, SimResult, Simulation
from mileage.workload.columns import columns_of
from mileage.workload.trace_request import TraceRequest
from tests.support.engine_host import linear_table

__all__ = ["ENGINE", "both", "fleet", "same", "traffic"]

ENGINE = EngineConfig(kv_blocks=300, running_max=32, step_tokens_max=256)
_TABLES = (
    linear_table((0.01, 2e-4, 1e-6, 5e-5, 1e-8)),
    linear_table((0.012, 1e-4, 1e-7, 3e-5, 1e-9), (0.002, 1e-4, 4e-6, 6e-5, 1e-8, )),
)  # fmt: skip


def fleet(count: int = 1, engine: EngineConfig = ENGINE, *, lines: int = 1) -> list[ReplicaSpec]:
    """Equal replicas, with a step table of one or two lines."""
    return [
        ReplicaSpec(name=f"r{i}", engine=engine, table=_TABLES[lines - 1], models=("m",))
        for i in range(count)
    ]


def traffic(
    seed: int,
    count: int = 250,
    *,
    rate: float = 25.0,
    prompt_tokens: int = 400,
    output_tokens: int = 150,
    block_tokens: int = 0,
    prefixes: int = 12,
) -> list[TraceRequest]:
    """Bursts, now and then at one time; with `block_tokens` some prompts begin alike."""
    random, now_s, requests = Random(seed), 0.0, []
    chains = [[100 * p + i for i in range(40)] for p in range(prefixes)]
    for number in range(count):
        if random.random() < 0.8:
            now_s += random.expovariate(rate)
        prompt = random.randint(1, prompt_tokens)
        blocks: tuple[int, ...] = ()
        if block_tokens and random.random() < 0.9:
            whole = -(-prompt // block_tokens)
            shared = random.randint(0, whole)
            own = range(100_000 + 1000 * number, 100_000 + 1000 * number + whole - shared)
            blocks = (*random.choice(chains)[:shared], *own)[:whole]
        requests.append(
            TraceRequest(
                arrived_s=now_s,
                prompt_tokens=prompt,
                output_tokens=random.choice((1, 2, random.randint(1, output_tokens))),
                prefix_blocks=blocks,
                block_tokens=block_tokens,
            )
        )
    return requests


def both(
    requests: Sequence[TraceRequest],
    replicas: Sequence[ReplicaSpec],
    control: ControlConfig,
    config: SimConfig | None = None,
) -> tuple[SimResult, SimResult]:
    """The results of the Python path and of the compiled one."""
    slow = Simulation(replicas, control=control, config=config).run(requests)
    return slow, run_fast(columns_of(requests), replicas, control, config)


def same(slow: SimResult, fast: SimResult) -> None:
    """Raises AssertionError where they differ in anything at all."""
    for name in Outcomes.__slots__:
        one, other = getattr(slow.outcomes, name), getattr(fast.outcomes, name)
        if one.tobytes() != other.tobytes():
            rows = [i for i, (a, b) in enumerate(zip(one, other, strict=True)) if a != b and a == a]
            row = rows[0] if rows else -1
            raise AssertionError(f"{name}[{row}]: {one[row]} and {other[row]}, of {len(rows)}")
    assert slow.rejections == fast.rejections
    assert slow.replicas == fast.replicas
    assert (slow.start_s, slow.duration_s, slow.gpus) == (
        fast.start_s,
        fast.duration_s,
        fast.gpus,
    )
    assert vars(slow.series) == vars(fast.series)
