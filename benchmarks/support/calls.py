"""One request of a load and what became of it, and schedules of many of them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from benchmarks.support.payloads import http_request
from mileage.measure.quantiles import quantile

__all__ = ["Call", "Mix", "bursty_times", "padded_text", "poisson_times", "text_of_words"]

_FRAME_BYTES = len('[{"role":"user","content":""}]')
_BYTES_PER_TOKEN = 4
_COMMON = (
    "time year people way day man thing woman life child world school state family student group "
    "country problem hand part place case week company system program question work government "
    "number night point home water room mother area money story fact month lot right study book "
    "eye job word business issue side kind head house service friend father power hour game line "
    "end member law car city name team minute idea kid body"
)
"""One token each, in most vocabularies."""
_WORDS = _COMMON.split()


@dataclass(slots=True)
class Call:
    """A request that is due at `due_s`, and its answer; all times in seconds since the start.

    `status` is 0 until an answer began; `whole` says that all of it came. `rejected`: the gateway
    refused it. `itl_p99_s` is the p99 (nearest rank) of the gaps between its token events, so the
    longest gap where there are fewer than a hundred.
    """

    due_s: float
    request: bytes
    prompt_tokens: int
    output_tokens: int
    tag: str = ""
    sent_s: float | None = None
    status: int = 0
    whole: bool = False
    error: str | None = None
    first_s: float | None = None
    end_s: float | None = None
    events: int = 0
    itl_p99_s: float | None = None
    itl_mean_s: float | None = None

    @property
    def rejected(self) -> bool:
        """Refused by a limit: 429 or 503."""
        return self.status in (429, 503)

    @property
    def ttft_s(self) -> float | None:
        """From when it was due to its first token; None where none came."""
        return None if self.first_s is None else self.first_s - self.due_s

    @property
    def e2e_s(self) -> float | None:
        """From when it was due to the end of a whole answer; else None."""
        ok = self.whole and self.status == 200 and self.end_s is not None
        return self.end_s - self.due_s if ok and self.end_s is not None else None

    def note_times(self, times_s: Sequence[float]) -> None:
        """Take the times of its token events, ascending."""
        self.events = len(times_s)
        gaps = [after - before for before, after in pairwise(times_s)]
        self.itl_p99_s = quantile(gaps, 0.99)
        if gaps:
            self.itl_mean_s = sum(gaps) / len(gaps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """What the requests of a load are like: lengths drawn evenly from ranges, ends included.

    `words`: the prompt is so many random words, for an engine that reads them; else it is padded to
    so many tokens of the step engine, which counts bytes.
    """

    model: str
    prompt_tokens: tuple[int, int]
    output_tokens: tuple[int, int]
    words: bool = False
    stream: bool = True
    tag: str = ""
    key: str | None = None

    def call(self, rng: random.Random, due_s: float = 0.0) -> Call:
        """A request by chance."""
        prompt_tokens = rng.randint(*self.prompt_tokens)
        output_tokens = rng.randint(*self.output_tokens)
        text = text_of_words if self.words else padded_text
        body: dict[str, object] = {
            "model": self.model,
            "messages": [{"role": "user", "content": text(rng, prompt_tokens)}],
            "max_tokens": output_tokens,
            "temperature": 0.7,
        }
        if self.stream:
            body["stream"] = True
        if self.words:
            body["ignore_eos"] = True  # llama.cpp's: every answer has the length that was drawn
        if self.tag:
            body["user"] = f"tag={self.tag}"
        encoded = json.dumps(body, separators=(",", ":")).encode()
        request = http_request(encoded, key=self.key)
        return Call(due_s, request, prompt_tokens, output_tokens, self.tag)

    def calls(self, seed: int, times_s: Sequence[float]) -> list[Call]:
        """One request for each time; the same ones for the same seed."""
        rng = random.Random(seed)
        return [self.call(rng, at_s) for at_s in times_s]

    def endless(self, seed: int) -> Iterator[Call]:
        """Requests without end, due when they are sent."""
        rng = random.Random(seed)
        while True:
            yield self.call(rng)


def text_of_words(rng: random.Random, tokens: int) -> str:
    """As many common words, so about as many tokens."""
    return " ".join(rng.choices(_WORDS, k=tokens))


def padded_text(rng: random.Random, tokens: int) -> str:
    """A text that makes the messages around it so many tokens of the step engine.

    That is the bytes of their JSON over four, and one: what the gateway estimates too.
    """
    size = (tokens - 1) * _BYTES_PER_TOKEN - _FRAME_BYTES
    if size < 0:
        raise ValueError(f"a chat has at least {-(-_FRAME_BYTES // _BYTES_PER_TOKEN) + 1} tokens")
    return f"{rng.getrandbits(64):016x} ".ljust(size, "x")[:size]


def poisson_times(seed: int, rate_per_s: float, duration_s: float) -> list[float]:
    """Arrivals whose gaps are exponential."""
    return bursty_times(seed, rate_per_s, duration_s, variation=1.0)


def bursty_times(
    seed: int, rate_per_s: float, duration_s: float, *, variation: float
) -> list[float]:
    """Arrivals whose gaps follow a gamma distribution with this coefficient of variation.

    1 is Poisson; above it they come in bursts.
    """
    rng = random.Random(seed)
    shape = variation**-2
    scale = 1.0 / (rate_per_s * shape)
    times, at_s = [], rng.gammavariate(shape, scale)
    while at_s < duration_s:
        times.append(at_s)
        at_s += rng.gammavariate(shape, scale)
    return times
