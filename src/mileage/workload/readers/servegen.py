"""Makes requests of ServeGen client files: each client's rate, burstiness and lengths by window.

Format: github.com/alibaba/ServeGen, README.md, "Data Structure". `chunk-N-trace.csv` has no header:
start of the window in seconds, rate, CV of the gaps, family of their distribution with its two
fitted parameters (shape, scale); a window without requests has no family. `chunk-N-dataset.json`
has, by a window's start, each field's distribution as the text of a Python dict {tokens:
probability}.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from itertools import accumulate
from operator import attrgetter
from random import Random
from typing import Final

import msgspec

from mileage.core.errors import TraceError
from mileage.workload.json_line import decode_line
from mileage.workload.synthetic.arrivals import (
    PoissonArrivals,
    arrival_times,
    gamma_gaps,
    weibull_gaps,
)
from mileage.workload.synthetic.config import AUDIO_FRAMES_PER_TOKEN, IMAGE_PATCHES_PER_TOKEN
from mileage.workload.trace_check import TOKENS_MAX
from mileage.workload.trace_request import TraceRequest

__all__ = ["ServeGenClient", "servegen_requests"]

_FIELDS: Final = 6
_SHAPES: Final = (1e-3, 1e6)
_TEXT: Final = ("input_tokens", "text_tokens")
_arrived_s = attrgetter("arrived_s")
_decoder = msgspec.json.Decoder(dict[str, dict[str, str]])
_Draw = Callable[[Random], int]


class ServeGenClient(msgspec.Struct, frozen=True, kw_only=True):
    """The two files of one client, opened; the paths name them in errors."""

    number: int
    trace_path: str
    trace: Iterable[bytes]
    dataset_path: str
    dataset: bytes


class _Window(msgspec.Struct, frozen=True):
    start_s: int
    rate_rps: float
    family: str
    shape: float


def servegen_requests(
    clients: Iterable[ServeGenClient],
    *,
    seed: int = 0,
    start_s: float = 0.0,
    duration_s: float | None = None,
) -> Iterator[TraceRequest]:
    """Requests of all clients from `start_s` on, which becomes 0; the same ones for one seed.

    In each window a client's arrivals are a stationary renewal process with the file's rate and the
    fitted shape, so that the mean number of arrivals is what the file says; its fitted scale is not
    used. A client is the tenant client-N. Memory: the files of all clients, and the distributions
    of one window of each. Raises TraceError.
    """
    end_s = math.inf if duration_s is None else start_s + duration_s
    made = [_Client(client, seed).requests(start_s, end_s) for client in clients]
    return merge(*made, key=_arrived_s)


class _Client:
    def __init__(self, client: ServeGenClient, seed: int) -> None:
        self._number, self._seed = client.number, seed
        self._path = client.dataset_path
        self._windows = _windows(client.trace, client.trace_path)
        self._texts = decode_line(
            _decoder, client.dataset, self._path, 1, expected="one JSON object"
        )
        try:
            self._starts = sorted((int(key), key) for key in self._texts)
        except ValueError:
            raise TraceError(
                self._path, 1, "expected starts of windows in seconds as keys"
            ) from None
        if not self._starts:
            raise TraceError(self._path, 1, "has no window")

    def requests(self, start_s: float, end_s: float) -> Iterator[TraceRequest]:
        key, lengths = "", _Lengths({}, "", "")
        for index, window in enumerate(self._windows):
            if index + 1 < len(self._windows):
                close_s: float = self._windows[index + 1].start_s
            else:
                close_s = (
                    2.0 * window.start_s - self._windows[index - 1].start_s if index else 600.0
                )
            if window.start_s >= end_s:
                return
            if close_s <= start_s or not window.rate_rps:
                continue
            place = max(0, bisect_right(self._starts, (window.start_s, "\uffff")) - 1)
            if self._starts[place][1] != key or not lengths:
                key = self._starts[place][1]
                lengths = _Lengths(self._texts[key], self._path, key)
            rng = Random(f"{self._seed} {self._number} {window.start_s}")  # noqa: S311 -- no secret
            for after_s in _times(window, rng):
                at_s = window.start_s + after_s
                if at_s >= close_s or at_s >= end_s:
                    break
                request = lengths.request(at_s - start_s, self._number, rng)
                if at_s >= start_s:
                    yield request


class _Lengths:
    """What is drawn for each request of one window."""

    def __init__(self, texts: dict[str, str], path: str, key: str) -> None:
        draws = {
            name: _draw(text, path, f"{key}.{name}")
            for name, text in texts.items()
            if name.endswith("_tokens")
        }
        self._all = draws
        if path and not (draws.keys() & set(_TEXT) and "output_tokens" in draws):
            raise TraceError(
                path, 1, f"window {key}: expected input_tokens or text_tokens, and output_tokens"
            )

    def __bool__(self) -> bool:
        return bool(self._all)

    def request(self, arrived_s: float, client: int, rng: Random) -> TraceRequest:
        tokens = {name: draw(rng) for name, draw in self._all.items()}
        text = next(tokens[name] for name in _TEXT if name in tokens)
        images = tokens.get("image_tokens", 0) + tokens.get("video_tokens", 0)
        audio = tokens.get("audio_tokens", 0)
        media = 0 if "input_tokens" in tokens else images + audio
        return TraceRequest(
            arrived_s=arrived_s,
            prompt_tokens=max(1, text + media),
            output_tokens=max(1, tokens["output_tokens"]),
            tenant=f"client-{client}",
            image_patches=images * IMAGE_PATCHES_PER_TOKEN,
            audio_frames=audio * AUDIO_FRAMES_PER_TOKEN,
        )


def _times(window: _Window, rng: Random) -> Iterator[float]:
    if window.family == "gamma":
        return gamma_gaps(window.rate_rps, window.shape, rng)
    if window.family == "weibull":
        return weibull_gaps(window.rate_rps, window.shape, rng)
    return arrival_times(PoissonArrivals(), window.rate_rps, rng)


def _windows(lines: Iterable[bytes], path: str) -> list[_Window]:
    windows: list[_Window] = []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text:
            continue
        parts = text.split(b",")
        if len(parts) != _FIELDS:
            message = (
                f"has {len(parts)} fields: expected start, rate, CV, family and two parameters"
            )
            raise TraceError(path, number, message)
        family = parts[3].strip().lower().decode("ascii", "replace")
        try:
            start_s, rate = int(parts[0]), float(parts[1])
            shape = float(parts[4]) if family in ("gamma", "weibull") else 1.0
        except ValueError:
            raise TraceError(path, number, "expected numbers for start, rate and shape") from None
        if family not in ("", "gamma", "weibull", "exponential", "expon", "poisson"):
            raise TraceError(
                path, number, f"family: got {family[:40]!r}, expected Gamma or Weibull"
            )
        if not (0 <= rate < 1e6 and _SHAPES[0] <= shape <= _SHAPES[1] and 0 <= start_s < 10**10):
            message = "expected a start and a rate of at least 0 and a shape above 0"
            raise TraceError(path, number, message)
        if windows and start_s <= windows[-1].start_s:
            message = f"start: got {start_s}, expected more than {windows[-1].start_s} above it"
            raise TraceError(path, number, message)
        windows.append(_Window(start_s, rate if family else 0.0, family, shape))
    if not windows:
        raise TraceError(path, 1, "is empty: expected the windows of a client")
    return windows


def _draw(text: str, path: str, key: str) -> _Draw:
    """Draws from the text of a dict {tokens: probability}."""
    tokens, weights = [], []
    for item in text.strip().removeprefix("{").removesuffix("}").split(","):
        name, _, value = item.partition(":")
        try:
            count, weight = int(name), float(value)
        except ValueError:
            raise TraceError(
                path, 1, f"{key}: got {item[:40]!r}, expected tokens: probability"
            ) from None
        if not (0 <= count <= TOKENS_MAX and 0 <= weight < math.inf):
            raise TraceError(path, 1, f"{key}: got {item[:40]!r}, expected both to be 0 or more")
        tokens.append(count)
        weights.append(weight)
    bounds = list(accumulate(weights))
    if not bounds[-1] > 0:
        raise TraceError(path, 1, f"{key}: expected probabilities above 0")
    total, last = bounds[-1], len(tokens) - 1
    return lambda rng: tokens[min(last, bisect_left(bounds, (1.0 - rng.random()) * total))]
