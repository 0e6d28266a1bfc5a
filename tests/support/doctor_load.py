"""A client process with a fault of its own, for the doctor to name: `python doctor_load.py KIND`.

It asks without end; whoever starts it ends it. KIND: `plain` (--clients at a time), `pool` (wants
--wanted at a time through a pool of --clients connections), `dated` (a time at the head of a long
template), `busy` (computes between its requests, all in one thread).
"""

from __future__ import annotations

import argparse
import asyncio
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

ANSWER_TOKENS = 24
TEMPLATE = (
    "You answer questions of the crew of a ship in clear and short words. Say where the rope is "
    "kept, when the watch begins, who has the key of the store and what there is to eat. Do not "
    "say what you do not know. When a storm comes, tell all to go below and to close the doors. "
    "When land is seen, tell the time and the place. Be kind to those who ask the same twice. "
)
BUSY_S = 0.5
TIMEOUT_S = 300.0


@contextmanager
def loading(url: str, *arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    """Such a process, asking at `url` (with its /v1) while the block runs."""
    command = [sys.executable, __file__, *map(str, arguments), "--url", url]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        try:
            yield process
            assert process.poll() is None, process.stderr and process.stderr.read().decode()
        finally:
            process.kill()
            process.wait()


def words(dice: random.Random, count: int) -> str:
    """Words that no two prompts share by chance."""
    return " ".join("".join(dice.choices("abcdefghijklmnop", k=4)) for _ in range(count))


async def ask(client: httpx.AsyncClient, url: str, prompt: str, tokens: int) -> None:
    """One answer; what fails is asked again by the next one."""
    body = {"model": "smollm2", "prompt": prompt, "max_tokens": tokens, "ignore_eos": True}
    answer = await client.post(f"{url}/completions", json=body)
    answer.raise_for_status()


def compute(for_s: float) -> None:
    """Burn CPU, as a tool does that tokenises and checks what it gets."""
    end_s = time.perf_counter() + for_s
    while time.perf_counter() < end_s:
        sum(range(10_000))


async def run(kind: str, url: str, clients: int, wanted: int, seed: int) -> None:
    """Ask until ended."""
    dice = random.Random(seed)
    limits = httpx.Limits(max_connections=clients if kind == "pool" else None)

    async def one(client: httpx.AsyncClient) -> None:
        while True:
            if kind == "dated":
                moment = time.strftime("%H:%M:%S") + f"{dice.random():.6f}"[1:]
                prompt = f"It is {moment} now. {TEMPLATE * 2}{words(dice, 5)}"
                await ask(client, url, prompt, 2)
            elif kind == "busy":
                compute(BUSY_S)
                await ask(client, url, words(dice, 4), 1)
            else:
                await ask(client, url, words(dice, 12), ANSWER_TOKENS)

    async with httpx.AsyncClient(timeout=TIMEOUT_S, limits=limits) as client:
        await asyncio.gather(*(one(client) for _ in range(wanted if kind == "pool" else clients)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=("plain", "pool", "dated", "busy"))
    parser.add_argument("--url", required=True)
    parser.add_argument("--clients", type=int, default=1)
    parser.add_argument("--wanted", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    asyncio.run(run(options.kind, options.url, options.clients, options.wanted, options.seed))
