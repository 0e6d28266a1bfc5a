"""An engine step by step whose step times are known, and what a gateway would record of it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from mileage.costmodel.served import ServedRequest

__all__ = ["StepTime", "arrivals", "serve"]

StepTime = Callable[[int, int, int], float]
"""Seconds of a step: requests that decode, tokens of their contexts, prompt tokens."""


class _Sequence:
    def __init__(self, arrived_s: float, prompt: int, cached: int, output: int) -> None:
        self.arrived_s, self.prompt, self.cached, self.output = arrived_s, prompt, cached, output
        self.left = prompt - cached
        self.times: list[float] = []


def arrivals(
    count: int, rate_per_s: float, seed: int, *, prompt: tuple[int, int], output: tuple[int, int]
) -> list[tuple[float, int, int]]:
    """Times by chance, and lengths drawn evenly."""
    random, at_s, found = Random(seed), 0.0, []
    for _ in range(count):
        at_s += random.expovariate(rate_per_s)
        found.append((at_s, random.randint(*prompt), random.randint(*output)))
    return found


def serve(
    load: list[tuple[float, int, int]],
    step_s: StepTime,
    *,
    slots: int,
    step_tokens_max: int,
    cached: int = 0,
    before_s: float = 0.0,
    jitter_s: float = 0.0,
    seed: int = 0,
) -> list[ServedRequest]:
    """Serve `load` (arrival, prompt and output tokens), decodes first, prompts first come first.

    `before_s`: from a request's dispatch until the engine knows of it. `jitter_s`: the most by
    which what is told of a token is late.
    """
    random = Random(seed)
    coming = [_Sequence(at, prompt, min(cached, prompt - 1), out) for at, prompt, out in load]
    waiting = coming[::-1]
    running: list[_Sequence] = []
    now_s = 0.0
    while waiting or running:
        if not running and waiting[-1].arrived_s + before_s > now_s:
            now_s = waiting[-1].arrived_s + before_s
        while waiting and len(running) < slots and waiting[-1].arrived_s + before_s <= now_s:
            running.append(waiting.pop())
        decoding = [s for s in running if not s.left]
        room = step_tokens_max - len(decoding)
        chunks = []
        for sequence in running:
            chunk = min(sequence.left, room)
            if chunk:
                chunks.append((sequence, chunk))
                room -= chunk
        context = sum(s.prompt + len(s.times) for s in decoding)
        now_s += step_s(len(decoding), context, sum(chunk for _, chunk in chunks))
        for sequence, chunk in chunks:
            sequence.left -= chunk
            if not sequence.left:
                decoding.append(sequence)
        for sequence in decoding:
            sequence.times.append(now_s)
            if len(sequence.times) == sequence.output:
                running.remove(sequence)
    return [_served(each, jitter_s, random) for each in coming]


def _served(sequence: _Sequence, jitter_s: float, random: Random) -> ServedRequest:
    times = tuple(sorted(at + random.uniform(0.0, jitter_s) for at in sequence.times))
    return ServedRequest(
        replica="engine",
        dispatched_s=sequence.arrived_s,
        first_s=times[0],
        last_s=times[-1],
        prompt_tokens=sequence.prompt,
        output_tokens=sequence.output,
        cached_tokens=sequence.cached,
        token_times_s=times,
    )
