"""Counting prompts in tokens beside the event loop, against counting them in it.

`make bench-tokenising`, or `python -m benchmarks.tokenising [--json] [--quick]`. Exit code: 0 the
bars are met, 1 not, 3 no verdict.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

import uvloop

from benchmarks.support.machine import describe
from benchmarks.support.output import Output, scratch_directory
from benchmarks.support.statistics import quantile
from benchmarks.support.tokenising_arms import (
    ARMS,
    Arm,
    LoopWatch,
    Prompts,
    make_arm,
    write_tokenizer,
)
from benchmarks.support.verdict import Bar, verdict
from mileage.gateway.prompt_counter import PromptCounter
from mileage.gateway.tokenizer_file import load_tokenizer

__all__ = ["main"]

SIZES: Final = (100, 1000, 4000, 16_000, 32_000)
LOAD: Final = 0.3
"""Of one core's time: what counting takes of the prompts that come at a steady rate."""
RATE_MAX: Final = 1000.0
CLOSED: Final = 8
"""Prompts at once where it is asked how many can be counted."""


class Round(NamedTuple):
    """One arm at one size."""

    delays_s: list[float]
    waits_s: list[float]
    per_s: float


async def _offered(arm: Arm, prompts: Prompts, tokens: int, rate: float, for_s: float) -> Round:
    """Prompts come at a steady rate, whatever becomes of those before."""
    bodies = [prompts.body(tokens) for _ in range(max(3, round(rate * for_s)))]
    await arm.count(prompts.body(tokens))  # what begins with the first is no delay of the rest
    watch = LoopWatch()
    waits_s: list[float] = []

    async def one(body: bytes) -> None:
        began_s = time.perf_counter()
        await arm.count(body)
        waits_s.append(time.perf_counter() - began_s)

    watch.start()
    began_s = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for number, body in enumerate(bodies):
            await asyncio.sleep(max(0.0, began_s + number / rate - time.perf_counter()))
            tasks.create_task(one(body))
    watch.stop()
    return Round(watch.delays_s, waits_s, 0.0)


async def _closed(arm: Arm, prompts: Prompts, tokens: int, for_s: float) -> float:
    """Prompts a second where the next comes as soon as one is done."""
    bodies = [prompts.body(tokens) for _ in range(64)]
    done = 0
    began_s = time.perf_counter()

    async def client(first: int) -> None:
        nonlocal done
        number = first
        while time.perf_counter() - began_s < for_s:
            # Another word in front: what was counted before is not known again.
            head, text = b'"content": "', bodies[number % len(bodies)]
            await arm.count(text.replace(head, b"%b%d " % (head, number), 1))
            number += CLOSED
            done += 1

    async with asyncio.TaskGroup() as tasks:
        for first in range(CLOSED):
            tasks.create_task(client(first))
    return done / (time.perf_counter() - began_s)


def measure(output: Output, *, quick: bool) -> dict[str, object]:
    """All figures; rounds of all arms and sizes, interleaved in random order."""
    sizes = (1000, 32_000) if quick else SIZES
    rounds, for_s = (1, 1.0) if quick else (3, 2.0)
    found: dict[tuple[str, int], list[Round]] = {}
    with scratch_directory() as directory:
        place = directory / "tokenizer.json"
        write_tokenizer(place)
        prompts = Prompts(2)
        counter = PromptCounter(load_tokenizer("tokenizer", str(place)))
        prompts.calibrate(counter)
        alone_s = {size: _alone_s(counter, prompts, size) for size in sizes}
        arms = {name: make_arm(name, place) for name in ARMS}
        order = [(name, size) for name in ARMS for size in sizes]
        try:
            for number in range(rounds):
                output.say(f"round {number + 1} of {rounds}")
                random.Random(number).shuffle(order)
                for name, size in order:
                    rate = min(RATE_MAX, LOAD / alone_s[size])
                    offered = uvloop.run(_offered(arms[name], prompts, size, rate, for_s))
                    per_s = 0.0
                    if name != "estimate":
                        per_s = uvloop.run(_closed(arms[name], prompts, size, for_s / 2))
                    found.setdefault((name, size), []).append(offered._replace(per_s=per_s))
        finally:
            for arm in arms.values():
                arm.close()
    figures: dict[str, object] = {"load_ratio": LOAD, "rounds": rounds, "sizes_tokens": sizes}
    for (name, size), several in sorted(found.items(), key=lambda item: item[0][1]):
        figures |= _figures(f"{name}_{size}", several)
    figures |= {f"count_alone_ms_{size}": round(alone_s[size] * 1e3, 3) for size in sizes}
    longest = sizes[-1]
    inside, beside = (figures[f"{arm}_{longest}_delay_p99_ms"] for arm in ("in_loop", "threads"))
    assert isinstance(inside, float)
    assert isinstance(beside, float)
    figures["delay_p99_ratio"] = round(inside / beside, 2) if beside else None
    figures["machine"] = describe()
    return figures


def _alone_s(counter: PromptCounter, prompts: Prompts, size: int) -> float:
    """CPU time of one count, the least of some."""
    taken = []
    for _ in range(5):
        body = prompts.body(size)
        began_s = time.thread_time()
        counter.count("chat", body)
        taken.append(time.thread_time() - began_s)
    return min(taken)


def _figures(name: str, rounds: Sequence[Round]) -> dict[str, object]:
    """Medians over the rounds; of the longest delay, the longest."""
    p99 = statistics.median(quantile(sorted(r.delays_s), 0.99) for r in rounds)
    figures: dict[str, object] = {
        f"{name}_delay_p99_ms": round(p99 * 1e3, 3),
        f"{name}_delay_max_ms": round(max(max(r.delays_s) for r in rounds) * 1e3, 3),
    }
    if rounds[0].per_s:
        waits = statistics.median(quantile(sorted(r.waits_s), 0.5) for r in rounds)
        figures[f"{name}_wait_p50_ms"] = round(waits * 1e3, 3)
        figures[f"{name}_per_s"] = round(statistics.median(r.per_s for r in rounds), 1)
    return figures


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tokenising", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the JSON object only")
    parser.add_argument("--quick", action="store_true", help="one short round of two sizes")
    arguments = parser.parse_args(argv)
    output = Output(quiet=arguments.json)
    figures = measure(output, quick=arguments.quick)
    columns = ("prompt tokens", "arm", "delay p99 ms", "delay max ms", "wait p50 ms", "counts/s")
    kinds = ("delay_p99_ms", "delay_max_ms", "wait_p50_ms", "per_s")
    sizes = figures["sizes_tokens"]
    assert isinstance(sizes, tuple)
    rows = [
        (size, arm, *(figures.get(f"{arm}_{size}_{kind}") for kind in kinds))
        for size in sizes
        for arm in ARMS
    ]
    output.table("Event loop while prompts are counted", columns, rows)
    bars = (Bar("delay_p99_ratio", 5.0),)
    return output.finish(figures, verdict(figures, bars))


if __name__ == "__main__":
    sys.exit(main())
