"""What the plugin costs a vLLM: CPU seconds of the engine per step, with it and without.

`make bench-vllm-plugin`, or `python -m benchmarks.vllm_plugin [--quick] [--json]`. See
docs/reference/benchmarks.md for what is measured and how. Exit code: 0 all bars met, 1 a bar
missed or a step lost, 3 no verdict.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.support.calls import Call, text_of_words
from benchmarks.support.load_client import run_schedule
from benchmarks.support.machine import describe
from benchmarks.support.output import Output, scratch_directory
from benchmarks.support.payloads import http_request
from benchmarks.support.processes import LOCAL, NotReadyError, exit_on_signals
from benchmarks.support.statistics import spread
from benchmarks.support.tap_replay import tap_cost
from benchmarks.support.verdict import NO_VERDICT, Bar, Verdict, verdict
from benchmarks.support.vllm_engine import MODEL_NAME, VLLM_PYTHON, VllmEngine, bench_model
from mileage.ledger.engine_step import EngineStep
from mileage.storage.step_file import read_steps

__all__ = ["BARS", "main"]

_DRAIN_S = 300.0
_STEPS = "vllm:iteration_tokens_total_count"
_SIZES: Mapping[str, Mapping[str, int]] = {
    "tiny": {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
    },
    "smollm2": {
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
    },
}
"""Two layers, whose steps take milliseconds; and the shape of SmolLM2-135M."""
BARS = tuple(Bar(f"{name}_plugin_ratio", 0.01, at_least=False) for name in _SIZES)


@dataclass(frozen=True, slots=True)
class Plan:
    """Rounds of each arm, requests of each that run side by side, and tokens of their answers."""

    rounds: Mapping[str, int]
    requests: int = 16
    tokens: int = 120


FULL = Plan({"tiny": 10, "smollm2": 4})
QUICK = Plan({"tiny": 2, "smollm2": 1}, tokens=40)


@dataclass(frozen=True, slots=True)
class Used:
    """One stretch: steps, and CPU seconds of the engine's processes, of which those of its core,
    in which the plugin is (the others compute)."""

    steps: int
    engine_s: float
    core_s: float
    failed: int

    @property
    def ms_per_step(self) -> float:
        """Of all of the engine."""
        return self.engine_s / max(1, self.steps) * 1e3


class Arm:
    """A server of one size, with the plugin or without it."""

    def __init__(self, size: str, model: Path, directory: Path, parts: ExitStack, plugin: bool):
        self.steps_directory = directory / f"steps-{size}"
        os.environ.pop("MILEAGE_STEPS_DIR", None)
        if plugin:
            os.environ["MILEAGE_STEPS_DIR"] = str(self.steps_directory)
            os.environ["MILEAGE_REPLICA"] = size
        name = f"{size}-{'with' if plugin else 'without'}"
        self._engine = VllmEngine(name, model, directory, plugin=plugin)
        parts.enter_context(self._engine.service)
        self._engine.wait_ready()

    def answer(self, plan: Plan, seed: int) -> Used:
        """Answer the plan's requests, all at once; other prompts for another seed."""
        rng = random.Random(seed)
        calls = []
        for _ in range(plan.requests):
            body = {
                "model": MODEL_NAME,
                "messages": [{"role": "user", "content": text_of_words(rng, 40)}],
                "max_tokens": plan.tokens,
                "stream": True,
                "ignore_eos": True,
            }
            request = http_request(json.dumps(body).encode())
            calls.append(Call(0.0, request, 40, plan.tokens, "short"))
        steps, (engine_s, core_s) = self._counted(), self._cpu_s()
        run_schedule(self._engine.port, calls, drain_s=_DRAIN_S)
        engine_after_s, core_after_s = self._cpu_s()
        failed = sum(not (call.whole and call.status == 200) for call in calls)
        return Used(
            self._counted() - steps, engine_after_s - engine_s, core_after_s - core_s, failed
        )

    def _counted(self) -> int:
        with LOCAL.open(
            urllib.request.Request(f"http://127.0.0.1:{self._engine.port}/metrics"), timeout=60
        ) as answer:
            text = answer.read().decode()
        lines = [line for line in text.splitlines() if line.startswith(_STEPS)]
        return sum(int(float(line.rpartition(" ")[2])) for line in lines)

    def _cpu_s(self) -> tuple[float, float]:
        """Of the engine's processes, and of those that are its core."""
        engine_s = core_s = 0.0
        for process in self._engine.service.tree():
            if process.pid == self._engine.service.pid:
                continue  # the API server
            times = process.cpu_times()
            engine_s += times.user + times.system
            if "EngineCor" in process.name():
                core_s += times.user + times.system
        return engine_s, core_s

    def told(self) -> list[EngineStep]:
        """The steps that it told."""
        paths = sorted(self.steps_directory.glob("*.steps"))
        return [step for path in paths for step in read_steps(path)]


def measure(
    size: str, plan: Plan, directory: Path, output: Output
) -> tuple[dict[str, object], list[str]]:
    """Both arms in turn; figures and failures."""
    place = directory / size
    place.mkdir()
    model = bench_model(place)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, **_SIZES[size]}))
    used: dict[bool, list[Used]] = {True: [], False: []}
    with ExitStack() as parts:
        arms = {plugin: Arm(size, model, place, parts, plugin) for plugin in (True, False)}
        for number in range(-1, plan.rounds[size]):
            for plugin in (True, False) if number % 2 else (False, True):
                found = arms[plugin].answer(plan, number)
                if number >= 0:
                    used[plugin].append(found)
                word = "with" if plugin else "without"
                output.say(
                    f"{size}, {'warm-up' if number < 0 else f'round {number + 1}'}, {word} the "
                    f"plugin: {found.steps} steps of {found.ms_per_step:.2f} CPU ms"
                )
    told = arms[True].told()
    failures = [f"{size}: a request failed" for each in used.values() for u in each if u.failed]
    if len(told) < sum(each.steps for each in used[True]):
        failures.append(f"{size}: {len(told)} steps were told, fewer than there were")
    cost = tap_cost(told, place)
    return figures(size, used, told, cost.us_per_step, cost.idle_ratio), failures


def figures(
    size: str,
    used: Mapping[bool, Sequence[Used]],
    told: Sequence[EngineStep],
    us_per_step: float,
    idle_ratio: float,
) -> dict[str, object]:
    """The plugin takes CPU time by the step and by the second. What it takes by itself is far less
    noisy than the difference of rounds, which is told beside it."""
    both = [*used[True], *used[False]]
    steps = sum(each.steps for each in both)
    engine_ms = sum(each.engine_s for each in both) / steps * 1e3
    core_ms = sum(each.core_s for each in both) / steps * 1e3
    busy_us = sum(step.duration_ns for step in told) / len(told) / 1e3
    plugin_us = us_per_step + idle_ratio * busy_us
    difference = [
        a.ms_per_step / b.ms_per_step - 1.0 for a, b in zip(used[True], used[False], strict=True)
    ]
    requests = sum(len(step.uses) for step in told) / len(told)
    return {
        f"{size}_plugin_ratio": round(plugin_us / 1e3 / engine_ms, 5),
        f"{size}_plugin_ratio_of_core": round(plugin_us / 1e3 / core_ms, 5),
        f"{size}_plugin_ratio_of_rounds": spread(difference).rounded(4),
        f"{size}_plugin_us_per_step": round(us_per_step, 2),
        f"{size}_plugin_core_share_idle": round(idle_ratio, 6),
        f"{size}_engine_cpu_ms_per_step": round(engine_ms, 3),
        f"{size}_core_cpu_ms_per_step": round(core_ms, 3),
        f"{size}_step_ms": round(median(step.duration_ns for step in told) / 1e6, 3),
        f"{size}_requests_per_step": round(requests, 1),
        f"{size}_steps": steps,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.vllm_plugin", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the JSON object only")
    parser.add_argument("--quick", action="store_true", help="a few short rounds")
    parser.add_argument("--size", choices=tuple(_SIZES), help="only this one")
    arguments = parser.parse_args(argv)
    output = Output(quiet=arguments.json)
    exit_on_signals()
    if not VLLM_PYTHON.exists():
        return output.finish({}, Verdict(NO_VERDICT, ("no vLLM: run scripts/setup-vllm.sh",)))
    found: dict[str, object] = {}
    failures: list[str] = []
    sizes = (arguments.size,) if arguments.size else tuple(_SIZES)
    with scratch_directory() as directory:
        try:
            for size in sizes:
                more, failed = measure(size, QUICK if arguments.quick else FULL, directory, output)
                found |= more
                failures += failed
        except NotReadyError as error:
            return output.finish({}, Verdict(NO_VERDICT, (str(error),)))
    output.table("Figures", ("", "value"), list(found.items()))
    bars = [bar for bar in BARS if bar.figure in found]
    judged = verdict(found, bars, failures=failures)
    return output.finish({**found, "machine": describe()}, judged)


if __name__ == "__main__":
    sys.exit(main())
