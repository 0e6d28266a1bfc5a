"""One arm of the simulator's benchmark in a process of its own, so that its memory is its own.

`python -m benchmarks.support.simulate_arm PATH POLICY TRACE`: PATH is fast or python. Prints one
JSON object: the trace once to warm up (by compiled code only), then once on the clock.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

from mileage.cli.simulate_policy import policy_choice
from mileage.cli.trace_lines import file_lines
from mileage.cli.trace_source import open_trace
from mileage.control.config import ControlConfig, GovernorConfig
from mileage.core.slo import SloConfig
from mileage.costmodel.catalogue import architecture, gpu
from mileage.costmodel.deployment import Deployment
from mileage.sim.engine_config import EngineConfig
from mileage.sim.node import ReplicaSpec
from mileage.sim.simulation import SimResult, Simulation
from mileage.sim.summary import Summary, summarise
from mileage.workload.columns import azure_columns

__all__ = ["RUNNING_MAX", "SLO", "STEP_TOKENS_MAX", "main", "replica"]

RUNNING_MAX = 256
STEP_TOKENS_MAX = 2048
SLO = SloConfig(ttft_s=2.0, itl_s=0.06)


def replica() -> ReplicaSpec:
    """Llama-3.1-8B on one H100, as vLLM runs it by its defaults for smaller GPUs."""
    deployment = Deployment(model=architecture("llama-3.1-8b"), gpu=gpu("h100"))
    return ReplicaSpec(
        name="replica-0",
        engine=EngineConfig(
            kv_blocks=deployment.kv_blocks(16, STEP_TOKENS_MAX, RUNNING_MAX),
            running_max=RUNNING_MAX,
            step_tokens_max=STEP_TOKENS_MAX,
        ),
        table=deployment.step_table(RUNNING_MAX, STEP_TOKENS_MAX),
    )


def simulated(path: str, policy: str, trace: Path) -> tuple[SimResult, Summary, float, float]:
    """Result, figures, and the seconds of all of it and of that without reading the trace."""
    control = ControlConfig(governor=policy_choice(policy, GovernorConfig()).governor, slo=SLO)
    spec = replica()
    started_s = time.perf_counter()
    if path == "fast":
        # Only here: the other arm has no compiler in its memory.
        from mileage.sim.fast.run import run_fast

        columns = azure_columns(file_lines(trace), path=str(trace))
        read_s = time.perf_counter()
        result = run_fast(columns, [spec], control)
    else:
        with open_trace(str(trace)) as opened:
            requests = list(opened)
        read_s = time.perf_counter()
        result = Simulation([spec], control=control).run(requests)
    summary = summarise(result, slo=SLO)
    ended_s = time.perf_counter()
    return result, summary, ended_s - started_s, ended_s - read_s


def main(argv: list[str]) -> None:
    """Simulate it."""
    path, policy, trace = argv
    if path == "fast":
        simulated(path, policy, Path(trace))
    result, summary, total_s, wall_s = simulated(path, policy, Path(trace))
    document = {
        "requests": summary.requests,
        "answered": summary.answered,
        "output_tokens": sum(result.outcomes.output_tokens),
        "slo_attainment_ratio": summary.slo_attainment_ratio,
        "ttft_p99_s": None if summary.ttft_s is None else summary.ttft_s.p99,
        "duration_s": summary.duration_s,
        "total_s": total_s,
        "wall_s": wall_s,
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
    }
    sys.stdout.write(json.dumps(document) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
