"""The simulator's speed: the Azure conversation trace, compiled, in Python, and by Dynamo's replay.

`make bench-simulate`, or `python -m benchmarks.simulate [--json] [--repeats N] [--trace FILE]`. The
trace is azure_conv_2023.csv.gz in MILEAGE_DATA_DIR, or what `mileage trace fetch azure-conv-2023`
fetched. Every run is a process of its own on core 0; the arms take turns. Exit code: 0 all bars
met, 1 one missed, 3 no trace.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.support.dynamo_replay import BLOCK_TOKENS
from benchmarks.support.machine import describe, pinned
from benchmarks.support.output import Output, scratch_directory
from benchmarks.support.simulate_arm import RUNNING_MAX, STEP_TOKENS_MAX, replica
from benchmarks.support.verdict import NO_VERDICT, Bar, Verdict, verdict
from mileage.cli.trace_catalogue import fetched_path
from mileage.cli.trace_source import open_trace

__all__ = ["main"]

CORE = 0
REQUESTS = 19_366
TIMEOUT_S = 300
ROOT = Path(__file__).parents[1]
DYNAMO = ROOT / ".venvs" / "dynamo" / "bin" / "python"
GOVERNED = "model+wait"
"""The default policy, as far as the compiled path has it."""
ARMS = {
    "fast": ("fast", "off"),
    "python": ("python", "off"),
    "fast_model": ("fast", GOVERNED),
    "python_model": ("python", GOVERNED),
}
BARS = (
    Bar("requests_per_s_fast", 50_000),
    Bar("requests_per_s_python", 5_000),
    Bar("memory_mb", 300, at_least=False),
)
SAME = ("requests", "answered", "output_tokens", "slo_attainment_ratio", "ttft_p99_s", "duration_s")


def find_trace(given: Path | None) -> Path | None:
    """The Azure conversation trace; None where it is not here."""
    if given is not None:
        return given
    data = os.environ.get("MILEAGE_DATA_DIR")
    for path in (
        Path(data) / "traces" / "azure_conv_2023.csv.gz" if data else None,
        fetched_path("azure-conv-2023"),
    ):
        if path is not None and path.exists():
            return path
    return None


def as_mooncake(trace: Path, path: Path) -> None:
    """The trace in the format that Dynamo reads; no prompt shares a block with another."""
    block = 0
    with open_trace(str(trace)) as opened, path.open("w") as file:
        for request in opened:
            blocks = -(-request.prompt_tokens // BLOCK_TOKENS)
            record = {
                "timestamp": request.arrived_s * 1e3,
                "input_length": request.prompt_tokens,
                "output_length": request.output_tokens,
                "hash_ids": list(range(block, block + blocks)),
            }
            file.write(json.dumps(record) + "\n")
            block += blocks


def run(command: Sequence[str]) -> dict[str, Any]:
    """What one process says of itself."""
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{command[0]}: {done.stderr.strip().splitlines()[-1:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def commands(trace: Path, mooncake: Path) -> dict[str, list[str]]:
    """How each arm is run."""
    found = {
        name: [sys.executable, "-m", "benchmarks.support.simulate_arm", path, policy, str(trace)]
        for name, (path, policy) in ARMS.items()
    }
    if DYNAMO.exists():
        script = Path(__file__).parent / "support" / "dynamo_replay.py"
        limits = (replica().engine.kv_blocks, RUNNING_MAX, STEP_TOKENS_MAX)
        found["dynamo"] = [str(DYNAMO), str(script), str(mooncake), *map(str, limits)]
    return found


def measure(
    trace: Path, mooncake: Path, repeats: int, output: Output
) -> tuple[dict[str, list[dict[str, Any]]], str | None]:
    """Every run of each arm, and why there is none of Dynamo's."""
    arms = commands(trace, mooncake)
    reason = None if "dynamo" in arms else "not installed: make dynamo"
    output.say("compiling, where that was not done before")
    run(arms["fast"])
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in arms}
    for number in range(repeats):
        output.say(f"round {number + 1} of {repeats}")
        for name, command in list(arms.items()):
            try:
                runs[name].append(run(command))
            except RuntimeError as error:
                if name != "dynamo":
                    raise
                reason = str(error)
                del arms[name], runs[name]
    return runs, reason


def wrong(runs: dict[str, list[dict[str, Any]]]) -> list[str]:
    """What shows that arms did not simulate the same, or the two paths came to other figures."""
    found = []
    for fast, python in (("fast", "python"), ("fast_model", "python_model")):
        seen = {tuple(each[key] for key in SAME) for each in (*runs[fast], *runs[python])}
        if len(seen) > 1:
            found.append(f"{fast} and {python} differ: {sorted(seen)}")
    for name, each in runs.items():
        if any(one["requests"] != REQUESTS for one in each):
            found.append(f"{name} simulated {each[0]['requests']} requests, not {REQUESTS}")
    tokens = {one["output_tokens"] for name in ("fast", "dynamo") for one in runs.get(name, ())}
    if len(tokens) > 1:
        found.append(f"Dynamo generated other numbers of tokens: {sorted(tokens)}")
    return found


def figures(runs: dict[str, list[dict[str, Any]]]) -> dict[str, object]:
    """Medians of the rounds."""

    def median(name: str, key: str) -> float:
        return statistics.median(float(each[key]) for each in runs[name])

    found: dict[str, object] = {}
    for name in ARMS:
        found[f"requests_per_s_{name}"] = round(REQUESTS / median(name, "wall_s"))
        found[f"requests_per_s_{name}_with_reading"] = round(REQUESTS / median(name, "total_s"))
        found[f"memory_mb_{name}"] = round(median(name, "memory_mb"))
    found["memory_mb"] = max(round(median(name, "memory_mb")) for name in ARMS)
    found["requests_per_s_dynamo"] = found["ratio_dynamo"] = None
    found["ratio_dynamo_low"] = found["memory_mb_dynamo"] = None
    if "dynamo" in runs:
        found["requests_per_s_dynamo"] = round(REQUESTS / median("dynamo", "total_s"))
        ratios = [
            theirs["total_s"] / ours["total_s"]
            for ours, theirs in zip(runs["fast"], runs["dynamo"], strict=True)
        ]
        found["ratio_dynamo"] = round(statistics.median(ratios), 2)
        found["ratio_dynamo_low"] = round(min(ratios), 2)
        found["memory_mb_dynamo"] = round(median("dynamo", "memory_mb"))
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulate", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the JSON object only")
    parser.add_argument("--repeats", type=int, default=5, help="rounds")
    parser.add_argument("--trace", type=Path, help="the Azure conversation trace")
    arguments = parser.parse_args(argv)
    output = Output(quiet=arguments.json)
    trace = find_trace(arguments.trace)
    if trace is None:
        reason = "no trace: set MILEAGE_DATA_DIR, or mileage trace fetch azure-conv-2023"
        return output.finish({}, Verdict(NO_VERDICT, (reason,)))
    with scratch_directory() as directory, pinned(CORE):
        mooncake = directory / "azure.jsonl"
        as_mooncake(trace, mooncake)
        runs, dynamo_reason = measure(trace, mooncake, arguments.repeats, output)
    found = figures(runs)
    rows = [
        (
            name,
            found[f"requests_per_s_{name}"] if name in ARMS else None,
            found.get(f"requests_per_s_{name}_with_reading", found.get(f"requests_per_s_{name}")),
            found[f"memory_mb_{name}"],
        )
        for name in runs
    ]
    output.table("Medians", ("", "requests/s", "with reading", "memory MB"), rows)
    judged = verdict(found, BARS, failures=wrong(runs))
    document = {**found, "requests": REQUESTS, "repeats": arguments.repeats}
    return output.finish(
        {**document, "dynamo_reason": dynamo_reason, "machine": describe()}, judged
    )


if __name__ == "__main__":
    sys.exit(main())
