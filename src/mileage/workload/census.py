"""Census: what there is in a trace, counted in one pass and in bounded memory."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final

from mileage.workload.mixing import mixed64
from mileage.workload.synthetic.config import AUDIO_FRAMES_PER_TOKEN, IMAGE_PATCHES_PER_TOKEN
from mileage.workload.trace_request import TraceRequest

__all__ = ["Census", "Counts", "Distinct", "Gaps", "RateBins"]

_EXACT_BELOW: Final = 1 << 16
_KEPT_BITS: Final = 11
_NAMES_MAX: Final = 10_000
_IDS_MAX: Final = 1 << 20
_BINS_MAX: Final = 480
_OTHERS: Final = "(others)"


class Gaps:
    """Time from each arrival to the next: mean and variation, by Welford's method."""

    def __init__(self) -> None:
        self.count = 0
        self.none = 0
        """Arrivals at the very moment of the one before."""
        self._mean_s = self._squares = 0.0

    def add(self, gap_s: float) -> None:
        """One more gap."""
        self.count += 1
        self.none += not gap_s
        off = gap_s - self._mean_s
        self._mean_s += off / self.count
        self._squares += off * (gap_s - self._mean_s)

    @property
    def cv(self) -> float | None:
        """Standard deviation over mean; None below two gaps, or where all arrive at one moment."""
        if self.count < 2 or not self._mean_s:
            return None
        return math.sqrt(self._squares / self.count) / self._mean_s


class Counts:
    """Arrivals in each of successive windows: how much their number varies."""

    def __init__(self, window_s: float) -> None:
        self.window_s = window_s
        self._place = self._arrivals = 0
        self._sum = self._squares = 0

    def add(self, arrived_s: float) -> None:
        """One more arrival."""
        place = int(arrived_s / self.window_s)
        if place != self._place:
            self._sum += self._arrivals
            self._squares += self._arrivals * self._arrivals
            self._place, self._arrivals = place, 0
        self._arrivals += 1

    @property
    def dispersion(self) -> float | None:
        """Variance over mean of the whole windows: 1 for Poisson arrivals; None below 10 windows.

        The last window, which the trace may end in, does not count.
        """
        windows = self._place
        if windows < 10 or not self._sum:
            return None
        mean = self._sum / windows
        return (self._squares / windows - mean * mean) / mean


class RateBins:
    """Arrivals over time in at most 480 bins, which double their width when there are too many."""

    def __init__(self) -> None:
        self.width_s = 0.0625
        self.counts: list[int] = []

    def add(self, arrived_s: float) -> None:
        """One more arrival."""
        place = int(arrived_s / self.width_s)
        while place >= _BINS_MAX:
            pairs = self.counts + [0] * (len(self.counts) % 2)
            self.counts = [a + b for a, b in zip(pairs[::2], pairs[1::2], strict=True)]
            self.width_s *= 2.0
            place = int(arrived_s / self.width_s)
        counts = self.counts
        if place >= len(counts):
            counts.extend([0] * (place + 1 - len(counts)))
        counts[place] += 1


class Distinct:
    """How many different ids there are: exact up to a million, then estimated within about 0.3 %.

    Beyond that a sample is kept, of ids whose hash ends in zeros: one more with each doubling.
    """

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._level = 0

    def add(self, ids: Sequence[int]) -> None:
        """Some more, seen before or not."""
        if self._level:
            mask = (1 << self._level) - 1
            ids = [i for i in ids if not mixed64(i) & mask]
        self._seen.update(ids)
        while len(self._seen) > _IDS_MAX:
            self._level += 1
            mask = (1 << self._level) - 1
            self._seen = {i for i in self._seen if not mixed64(i) & mask}

    @property
    def count(self) -> int:
        """Their number, or the estimate of it."""
        return len(self._seen) << self._level

    @property
    def exact(self) -> bool:
        """The count is no estimate."""
        return not self._level


class Census:
    """Takes the requests of a trace by arrival; memory does not grow with their number."""

    def __init__(self) -> None:
        self.requests = 0
        self.last_s = 0.0
        self.gaps, self.bins = Gaps(), RateBins()
        self.seconds, self.minutes = Counts(1.0), Counts(60.0)
        self.prompt_runs: dict[int, int] = {}
        """Prompt lengths and how often each came; above 65,535 tokens rounded to 0.1 %."""
        self.output_runs: dict[int, int] = {}
        self.prompt_tokens = self.output_tokens = 0
        self.media_tokens = 0.0
        """Of all prompts: images and audio in the unit of text."""
        self.blocks = 0
        self.block_tokens: set[int] = set()
        self.unique_blocks, self.contents, self.conversations = Distinct(), Distinct(), Distinct()
        self.with_content = self.in_conversation = self.streams = 0
        self.modalities: Counter[str] = Counter()
        self.endpoints: Counter[str] = Counter()
        self.tenants: Counter[str] = Counter()
        self.models: Counter[str] = Counter()
        self.adapters: Counter[str] = Counter()

    def add(self, request: TraceRequest) -> None:
        """The next request."""
        arrived_s, prompt, output = request.arrived_s, request.prompt_tokens, request.output_tokens
        if self.requests:
            self.gaps.add(arrived_s - self.last_s)
        self.requests += 1
        self.last_s = arrived_s
        self.bins.add(arrived_s)
        self.seconds.add(arrived_s)
        self.minutes.add(arrived_s)
        self.prompt_tokens += prompt
        self.output_tokens += output
        prompt, output = _rounded(prompt), _rounded(output)
        self.prompt_runs[prompt] = self.prompt_runs.get(prompt, 0) + 1
        self.output_runs[output] = self.output_runs.get(output, 0) + 1
        self.endpoints[request.endpoint] += 1
        self.streams += request.stream
        _count(self.tenants, request.tenant)
        if request.model is not None:
            _count(self.models, request.model)
        if request.adapter is not None:
            _count(self.adapters, request.adapter)
        self._add_media(request)
        if request.prefix_blocks:
            self.blocks += len(request.prefix_blocks)
            self.unique_blocks.add(request.prefix_blocks)
            if len(self.block_tokens) < 16:
                self.block_tokens.add(request.block_tokens)
        if request.content_id is not None:
            self.with_content += 1
            self.contents.add((request.content_id,))
        if request.conversation is not None:
            self.in_conversation += 1
            self.conversations.add((request.conversation,))

    def _add_media(self, request: TraceRequest) -> None:
        image = request.image_patches / IMAGE_PATCHES_PER_TOKEN
        audio = request.audio_frames / AUDIO_FRAMES_PER_TOKEN
        self.media_tokens += image + audio
        kind = "text" if not image and not audio else "image" if image >= audio else "audio"
        self.modalities[kind] += 1


def _rounded(tokens: int) -> int:
    if tokens < _EXACT_BELOW:
        return tokens
    shift = tokens.bit_length() - _KEPT_BITS
    return tokens >> shift << shift


def _count(names: Counter[str], name: str) -> None:
    if name in names or len(names) < _NAMES_MAX:
        names[name] += 1
    else:
        names[_OTHERS] += 1
