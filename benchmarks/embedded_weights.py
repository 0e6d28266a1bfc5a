"""The embedded engine's weight types: how much faster a conversion is, and what quality it costs.

`make bench-embedded-weights`, or `python -m benchmarks.embedded_weights`. Runs the bundled model as
it is, in Q8_0 and in Q4_0, in turns, and asks each for the next token at every place of a text.
With `--threads 1` the figures stand a busy machine better. Exit code: 0 the conversion to Q8_0
is faster and as good, 1 it is not, 3 no verdict.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import math
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.support.machine import describe
from benchmarks.support.output import Output, scratch_directory
from benchmarks.support.verdict import Bar, verdict
from mileage.engines.config import EmbeddedConfig
from mileage.engines.embedded.engine import EmbeddedEngine
from mileage.engines.embedded.resolve import resolve_model

__all__ = ["main"]

CLIENTS = 8
OUTPUT_TOKENS = 64
CONTEXT_TOKENS = 1024
TOP = 300
"""Alternatives that are asked for at each place; the rest of the vocabulary shares what is left."""
VOCABULARY = 49_152
FIRST_TOKENS = 16
BARS = (Bar("q8_0_output_ratio", 1.05), Bar("q8_0_kl_nats", 0.05, at_least=False))
TEXT = """\
The lighthouse had been dark for eleven years when the council decided to repair it. Nobody \
needed the light any more, since every fishing boat carried a receiver that knew its place on \
the map to within a few metres, but people in the town had noticed that they gave directions by \
it, that children drew it, and that the two hotels printed it on their letters. So a mason was \
called from the next county. She climbed the stairs with a hammer, tapped the walls, listened, \
and came down again to say that the stone was sound and that only the mortar had gone. It would \
take one summer, if the weather held, and it would cost less than the new car park had. In June \
the scaffolding went up. Tourists asked whether the tower was about to be pulled down, and were \
told that it was being put together. The mason worked from the top to the bottom, because water \
runs that way, and because, she said, one should begin with the part that everyone is afraid \
of. By the end of August she had reached the door. The lamp was lit again on the first evening \
of autumn, for an hour, and the boats that were still out turned round to look at it.
"""


@dataclass(slots=True)
class Speeds:
    """Figures of each round, in tokens per second."""

    prompt: list[float] = field(default_factory=list)
    output: list[float] = field(default_factory=list)
    output_shared: list[float] = field(default_factory=list)


Place = dict[int, float]
"""Token id -> log-probability, of the likeliest at one place of the text."""


class Client:
    """Asks one engine."""

    def __init__(self, engine: EmbeddedEngine) -> None:
        self._host = engine.url.removeprefix("http://")
        self._headers = {
            "Authorization": engine.authorization,
            "Content-Type": "application/json",
        }

    def post(self, path: str, body: Mapping[str, object]) -> Any:
        """The answer's JSON."""
        connection = http.client.HTTPConnection(self._host, timeout=300)
        try:
            connection.request("POST", path, json.dumps(body), self._headers)
            response = connection.getresponse()
            answer = json.load(response)
            if response.status != 200:
                raise RuntimeError(f"{path}: {response.status} {answer}")
            return answer
        finally:
            connection.close()

    def generate(self, seed: int) -> dict[str, float]:
        """llama.cpp's own timings of one answer."""
        prompt = " ".join(f"{(seed * 7919 + i * 104_729) % 1000}" for i in range(32))
        body = {"prompt": prompt, "max_tokens": OUTPUT_TOKENS, "ignore_eos": True}
        timings: dict[str, float] = self.post("/v1/completions", body)["timings"]
        return timings


def speeds(client: Client, into: Speeds, round_: int) -> None:
    """One answer alone, then as many at once as there are slots."""
    client.generate(-1 - round_)
    alone = client.generate(round_)
    into.prompt.append(alone["prompt_per_second"])
    into.output.append(alone["predicted_per_second"])
    with ThreadPoolExecutor(CLIENTS) as pool:
        shared = list(pool.map(client.generate, range(1000 * round_, 1000 * round_ + CLIENTS)))
    slowest_s = max(t["predicted_ms"] + t["prompt_ms"] for t in shared) / 1000
    into.output_shared.append(CLIENTS * OUTPUT_TOKENS / slowest_s)


def places(client: Client) -> tuple[list[int], list[Place]]:
    """The text's tokens, and what the model expects at each place from FIRST_TOKENS on."""
    tokens: list[int] = client.post("/tokenize", {"content": TEXT})["tokens"]
    found = []
    for at in range(FIRST_TOKENS, len(tokens)):
        body = {"prompt": tokens[:at], "n_predict": 1, "n_probs": TOP, "id_slot": 0}
        top = client.post("/completion", body)["completion_probabilities"][0]["top_logprobs"]
        found.append({item["id"]: float(item["logprob"]) for item in top})
    return tokens, found


def floor(place: Place) -> float:
    """Log-probability of a token outside of the top: what is left, shared by all of them."""
    left = max(1e-9, 1.0 - sum(math.exp(v) for v in place.values()))
    return math.log(left / (VOCABULARY - len(place)))


def perplexity(tokens: Sequence[int], found: Sequence[Place]) -> float:
    """exp of the mean negative log-likelihood of the text's own tokens."""
    pairs = zip(tokens[FIRST_TOKENS:], found, strict=True)
    return math.exp(-statistics.fmean(place.get(token, floor(place)) for token, place in pairs))


def divergence(reference: Sequence[Place], other: Sequence[Place]) -> tuple[float, float]:
    """Mean KL divergence from the reference in nats, and the share of equal first choices."""
    divergences, equal = [], 0
    for ours, theirs in zip(reference, other, strict=True):
        low = floor(theirs)
        divergences.append(sum(math.exp(v) * (v - theirs.get(t, low)) for t, v in ours.items()))
        equal += max(ours, key=ours.__getitem__) == max(theirs, key=theirs.__getitem__)
    return statistics.fmean(divergences), equal / len(reference)


def progress(label: str, done_bytes: int, total_bytes: int | None) -> None:
    """Fetching and converting take seconds here."""


async def measure(
    output: Output, rounds: int, threads: int | None, state: Path
) -> dict[str, object]:
    """Run the variants in turns, so that a slow minute of the machine hits all."""
    variants = {
        name: EmbeddedConfig(
            slots=CLIENTS, context_tokens=CONTEXT_TOKENS, weights=name, threads=threads
        )
        for name in ("as-is", "q8_0", "q4_0")
    }
    measured = {name: Speeds() for name in variants}
    expected: dict[str, tuple[list[int], list[Place]]] = {}
    for round_ in range(rounds):
        for name, config in variants.items():
            model = resolve_model(config, progress=progress, environ=os.environ)
            engine = EmbeddedEngine(
                config, model_path=model, state_dir=state, on_change=lambda status: None
            )
            await engine.start()
            try:
                client = Client(engine)
                if not round_:
                    output.say(f"{name}: quality")
                    expected[name] = await asyncio.to_thread(places, client)
                output.say(f"{name}: speed, round {round_ + 1} of {rounds}")
                await asyncio.to_thread(speeds, client, measured[name], round_)
            finally:
                await engine.stop(10.0)
    return figures(output, measured, expected)


def figures(
    output: Output,
    measured: Mapping[str, Speeds],
    expected: Mapping[str, tuple[list[int], list[Place]]],
) -> dict[str, object]:
    """Medians over the rounds, and ratios to the weights as they are."""
    rows, result = [], dict[str, object](describe())
    reference = measured["as-is"]
    for name, speed in measured.items():
        tokens, found = expected[name]
        kl_nats, agreement = divergence(expected["as-is"][1], found)
        values = {
            "prompt_per_s": statistics.median(speed.prompt),
            "output_per_s": statistics.median(speed.output),
            "output_ratio": statistics.median(speed.output) / statistics.median(reference.output),
            "output_shared_per_s": statistics.median(speed.output_shared),
            "perplexity": perplexity(tokens, found),
            "kl_nats": kl_nats,
            "same_first_choice_ratio": agreement,
        }
        rows.append((name, *values.values()))
        result |= {f"{name.replace('-', '_')}_{k}": round(v, 4) for k, v in values.items()}
    result["places"] = len(expected["as-is"][1])
    output.table(
        f"SmolLM2-135M-Instruct (as it is: Q4_1), {CLIENTS} clients where shared",
        ("weights", "prompt/s", "output/s", "ratio", "shared/s", "perplexity", "KL", "same first"),
        rows,
    )
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="no tables and progress")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, help="of the engine; default: one per core")
    options = parser.parse_args(arguments)
    output = Output(quiet=options.json)
    with scratch_directory() as state:
        result = asyncio.run(measure(output, options.rounds, options.threads, state))
    result["threads"] = options.threads
    doubts = []
    busy = os.getloadavg()[0] / (os.cpu_count() or 1)
    if busy > 2:
        doubts.append(f"the machine is busy: {busy:.1f} runnable processes per core")
    return output.finish(result, verdict(result, BARS, doubts=doubts))


if __name__ == "__main__":
    sys.exit(main())
