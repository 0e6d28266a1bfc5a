"""vLLM with Mileage's budget inside, against vLLM as it comes: gaps between tokens, and throughput.

`make bench-vllm`, or `python -m benchmarks.vllm [--json] [--quick] [--rounds N]`. One server with
our plugin, whose policy is switched on and off through /mileage/control without a restart, and one
without it. See docs/reference/benchmarks.md for how. Exit code: 0 all bars met, 1 a bar missed or a
request failed, 3 no verdict.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from benchmarks.support.foreign import ForeignWatch
from benchmarks.support.machine import describe
from benchmarks.support.output import Output, scratch_directory
from benchmarks.support.processes import NotReadyError, exit_on_signals
from benchmarks.support.verdict import NO_VERDICT, Bar, Verdict, verdict
from benchmarks.support.vllm_engine import VLLM_PYTHON, VllmEngine, bench_model
from benchmarks.support.vllm_load import Stretch, TimedCall, alone, mixed_load, stretch

__all__ = ["main"]

ROUNDS, SECONDS, LEAD_S = 3, 24.0, 6.0
QUICK_ROUNDS, QUICK_SECONDS = 1, 10.0
TARGET_OVER = 2.5
"""The target is what the engine by itself misses by so much, in stretches before the rounds."""
TARGET_SEEDS = (1, 2, 3)
LONG_SHARE = 0.45
"""Part of the time that the engine would spend on long prompts if each came alone."""
SHORT_AT_ONCE = 3.0
"""Short requests in flight, if steps took as long as without prompts. Steps take longer with more
requests in them: twice as many and the engine is full, so that its queue, and with it each gap,
grows for as long as the stretch lasts, whatever its budget."""
SHORT_TOKENS = 60.0
"""Of an answer, on average."""
BARS = (
    Bar("itl_p95_default_over_target", 2.0, comparative=True),
    Bar("itl_p95_governed_over_target", 1.0, at_least=False),
    Bar("throughput_ratio", 0.9, comparative=True),
)
ARMS = ("plain", "default", "governed")
"""vLLM without our plugin; with it, no policy on; the budget `model`."""


@dataclass(frozen=True, slots=True)
class Load:
    """What the engine is offered, by its own speed here."""

    token: int
    short_per_s: float
    long_per_s: float
    seconds: float
    lead_s: float

    def calls(self, seed: int, words_seed: int) -> list[TimedCall]:
        """The same arrivals and lengths for the same seed."""
        return mixed_load(
            seed,
            words_seed,
            self.token,
            short_per_s=self.short_per_s,
            long_per_s=self.long_per_s,
            duration_s=self.seconds,
        )


class Bench:
    """The two servers, and what each arm showed in each round."""

    def __init__(self, ours: VllmEngine, plain: VllmEngine, load: Load, output: Output) -> None:
        self._ours, self._plain, self._load, self._output = ours, plain, load, output
        self.seen: dict[str, list[Stretch]] = {arm: [] for arm in ARMS}
        self._stretches = 0
        self.target_s = 0.0
        self.policy: dict[str, object] | None = None

    def set_target(self) -> None:
        """From stretches of the engine by itself, each with other arrivals."""
        found = [self._stretch("default", seed=seed).itl_p95_s for seed in TARGET_SEEDS]
        self.target_s = median(found) / TARGET_OVER
        shown = ", ".join(f"{p95_s * 1e3:.0f}" for p95_s in found)
        self._output.say(
            f"the engine by itself: ITL p95 {shown} ms, so that the target is "
            f"{self.target_s * 1e3:.0f} ms"
        )

    def round(self, number: int) -> None:
        """Each arm under the same load; another one is first in each round."""
        turn = number % len(ARMS)
        for arm in (*ARMS[turn:], *ARMS[:turn]):
            found = self._stretch(arm, seed=100 + number)
            self.seen[arm].append(found)
            self._output.say(
                f"round {number + 1}, {arm}: ITL p50 {found.itl_p50_s * 1e3:.0f} ms, p95 "
                f"{found.itl_p95_s * 1e3:.0f} ms, {found.tokens_per_s:.0f} tokens/s"
            )

    def _stretch(self, arm: str, seed: int) -> Stretch:
        engine = self._plain if arm == "plain" else self._ours
        if engine is self._ours:
            # The host starts anew each time: what it has to learn is part of what is measured.
            policy = {"budget": "model", "itl_target_s": self.target_s}
            engine.control(policy if arm == "governed" else None)
        load = self._load
        # Other words each time: none is to find its prompts in the cache.
        self._stretches += 1
        calls = load.calls(seed, 1000 + self._stretches)
        found = stretch(engine.port, calls, from_s=load.lead_s, until_s=load.seconds)
        if arm == "governed":
            self.policy = engine.state()["policy"]
        return found

    def figures(self) -> dict[str, object]:
        """Medians over the rounds."""

        def of(arm: str, value: Callable[[Stretch], float]) -> float:
            return median(value(each) for each in self.seen[arm])

        def ratio(one: str, other: str, value: Callable[[Stretch], float]) -> float:
            # Of the same round: what disturbs the machine for long disturbs both.
            rounds = zip(self.seen[one], self.seen[other], strict=True)
            return median(value(a) / max(value(b), 1e-9) for a, b in rounds)

        p95, speed = _p95, _tokens_per_s
        found: dict[str, object] = {
            "itl_target_s": self.target_s,
            "itl_p95_ratio": ratio("default", "governed", p95),
            "throughput_ratio": ratio("governed", "default", speed),
            "itl_p95_default_over_target": of("default", p95) / self.target_s,
            "itl_p95_governed_over_target": of("governed", p95) / self.target_s,
            "plugin_off_itl_p50_ratio": ratio("default", "plain", lambda s: s.itl_p50_s),
            "plugin_off_throughput_ratio": ratio("default", "plain", speed),
        }
        for arm in ARMS:
            for name in _SHOWN:
                found[f"{name}_{arm}"] = median(getattr(each, name) for each in self.seen[arm])
        return {k: round(v, 4) if isinstance(v, float) else v for k, v in found.items()}

    def failures(self) -> list[str]:
        """Requests that were not answered whole."""
        return [
            f"{arm}: {each.failed} requests failed, the first: {each.first_error}"
            for arm in ARMS
            for each in self.seen[arm]
            if each.failed
        ]


_SHOWN = (
    "itl_p50_s",
    "itl_p95_s",
    "itl_p99_s",
    "ttft_short_p50_s",
    "ttft_short_p95_s",
    "ttft_long_p50_s",
    "ttft_long_p95_s",
    "tokens_per_s",
)


def _p95(found: Stretch) -> float:
    return found.itl_p95_s


def _tokens_per_s(found: Stretch) -> float:
    return found.tokens_per_s


def _load(engine: VllmEngine, output: Output, *, seconds: float, lead_s: float) -> Load:
    """By how fast this machine is now."""
    token = engine.token_of(" time")
    alone(engine.port, token, seed=3, tries=1)  # what is slow the first time
    long_s, decode_s = alone(engine.port, token, seed=1)
    output.say(f"a long prompt alone {long_s:.2f} s, a step of eight {decode_s * 1e3:.0f} ms")
    short_per_s = SHORT_AT_ONCE / (SHORT_TOKENS * decode_s)
    return Load(token, short_per_s, LONG_SHARE / long_s, seconds, lead_s)


def measure(
    directory: Path, output: Output, *, rounds: int, seconds: float
) -> tuple[dict[str, object], Verdict]:
    """All rounds; figures and verdict."""
    model = bench_model(directory)
    with ExitStack() as stack:
        engines = []
        for name, plugin in (("plain", False), ("governed", True)):
            engine = VllmEngine(name, model, directory, plugin=plugin)
            stack.enter_context(engine.service)
            engines.append(engine)
        for engine in engines:
            engine.wait_ready()
        plain, ours = engines
        lead_s = LEAD_S * seconds / SECONDS
        load = _load(ours, output, seconds=seconds, lead_s=lead_s)
        alone(plain.port, load.token, seed=3, tries=1)
        bench = Bench(ours, plain, load, output)
        bench.set_target()
        watch = ForeignWatch()
        for number in range(rounds):
            bench.round(number)
        doubts = watch.doubts("the rounds")
    output.table(
        "Medians of the rounds, s",
        ["figure", *ARMS],
        [[n, *(median(getattr(s, n) for s in bench.seen[arm]) for arm in ARMS)] for n in _SHOWN],
    )
    figures = bench.figures() | {
        "rounds": rounds,
        "short_per_s": round(load.short_per_s, 3),
        "long_per_s": round(load.long_per_s, 3),
        "policy": bench.policy,
        "stretches": {arm: [asdict(each) for each in bench.seen[arm]] for arm in ARMS},
    }
    return figures, verdict(figures, BARS, failures=bench.failures(), doubts=doubts)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.vllm", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the JSON object only")
    parser.add_argument("--quick", action="store_true", help="see that everything runs")
    parser.add_argument("--rounds", type=int, default=None, help="rounds of three stretches each")
    arguments = parser.parse_args(argv)
    output = Output(quiet=arguments.json)
    exit_on_signals()
    if not VLLM_PYTHON.exists():
        reason = f"needs vLLM in {VLLM_PYTHON.parents[1]}: make vllm"
        return output.finish({}, Verdict(NO_VERDICT, (reason,)))
    started_s = time.monotonic()
    rounds = QUICK_ROUNDS if arguments.quick else ROUNDS
    seconds = QUICK_SECONDS if arguments.quick else SECONDS
    try:
        with scratch_directory() as directory:
            figures, result = measure(
                directory, output, rounds=arguments.rounds or rounds, seconds=seconds
            )
    except NotReadyError as error:
        return output.finish({}, Verdict(NO_VERDICT, (str(error),)))
    figures |= {"seconds": round(time.monotonic() - started_s), "machine": describe()}
    return output.finish(figures, result)


if __name__ == "__main__":
    sys.exit(main())
