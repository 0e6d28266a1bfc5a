"""SyntheticConfig: the whole description of a synthetic workload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from mileage.core.bounds import require_at_least, require_positive, require_range
from mileage.core.errors import ConfigError
from mileage.core.request import Endpoint, Priority
from mileage.workload.synthetic.arrivals import Arrivals, PoissonArrivals
from mileage.workload.synthetic.lengths import Length, LognormalLength
from mileage.workload.trace_check import TOKENS_MAX

__all__ = [
    "AUDIO_FRAMES_PER_TOKEN",
    "IMAGE_PATCHES_PER_TOKEN",
    "ContentsConfig",
    "ConversationsConfig",
    "MediaConfig",
    "NamesConfig",
    "PrefixesConfig",
    "SyntheticConfig",
]

IMAGE_PATCHES_PER_TOKEN: Final = 4
AUDIO_FRAMES_PER_TOKEN: Final = 4
"""Both as in mileage.policy.modality, which is above this layer: a test holds them equal."""

_COUNT_MAX: Final = 1 << 39
"""Ids of blocks have room for so many owners."""
_NAMES_MAX: Final = 10_000_000


class NamesConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who or what a request belongs to: `count` of them by a Zipf law, or some by their weights."""

    count: int = 1
    alpha: float = 0.0
    """0: all equally often; 1: the k-th one 1/k as often as the first."""
    weights: dict[str, float] = {}
    """Names with weights, instead of `count` numbered ones."""

    def __post_init__(self) -> None:
        require_range("count", self.count, 1, _NAMES_MAX)
        require_range("alpha", self.alpha, 0.0, 10.0)
        if self.weights:
            _require_weights("weights", self.weights)
        if "" in self.weights:
            raise ConfigError("weights", "", "a name")


class ContentsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Requests that are made again and again, word by word: the same lengths, the same blocks."""

    count: int
    """How many different ones there are."""
    alpha: float = 1.0
    ratio: float = 1.0
    """The share of requests that are one of these; conversations are counted before."""

    def __post_init__(self) -> None:
        require_range("count", self.count, 1, _COUNT_MAX)
        require_range("alpha", self.alpha, 0.0, 10.0)
        require_range("ratio", self.ratio, 0.0, 1.0)


class PrefixesConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """System prompts: what many prompts begin with; it is added to the prompt's own length."""

    count: int
    tokens: Length
    alpha: float = 1.0
    ratio: float = 1.0
    """The share of prompts that begin with one."""

    def __post_init__(self) -> None:
        require_range("count", self.count, 1, _COUNT_MAX)
        require_range("alpha", self.alpha, 0.0, 10.0)
        require_range("ratio", self.ratio, 0.0, 1.0)


class ConversationsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Conversations: a turn's prompt is all that was said before, and a new message.

    Arrivals stay those of the arrival process: each one is the next turn of a conversation whose
    user has thought for long enough, and begins a new one where there is none such.
    """

    turns: float
    """Mean number of turns: each turn is the last one with probability 1 / turns."""
    think_s: float = 30.0
    """Mean time (exponential) from a turn's arrival to the earliest one of the next turn."""
    ratio: float = 1.0
    """The share of requests without a turn to continue that begin a conversation."""
    context_tokens_max: int = 131_072
    """A conversation ends where its next prompt would be longer."""
    waiting_max: int = 100_000
    """Conversations that wait for their next turn; beyond that the oldest ones end."""

    def __post_init__(self) -> None:
        require_range("turns", self.turns, 1.0, 1e6)
        require_range("think_s", self.think_s, 0.0, 1e6)
        require_range("ratio", self.ratio, 0.0, 1.0)
        require_range("context_tokens_max", self.context_tokens_max, 1, TOKENS_MAX)
        require_range("waiting_max", self.waiting_max, 1, 10_000_000)


class MediaConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Images and audio: independent of each other, their tokens are added to the prompt.

    Four patches, and four frames, are one token (docs/explanation/multimodal.md).
    """

    image_ratio: float = 0.0
    """The share of requests with an image."""
    image_patches: Length = LognormalLength(median=4096, sigma=0.5, high=65_536)
    audio_ratio: float = 0.0
    """The share of requests with a recording."""
    audio_frames: Length = LognormalLength(median=1000, sigma=1.0, high=360_000)

    def __post_init__(self) -> None:
        require_range("image_ratio", self.image_ratio, 0.0, 1.0)
        require_range("audio_ratio", self.audio_ratio, 0.0, 1.0)


class SyntheticConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A synthetic workload; equal descriptions give equal requests. Raises ConfigError."""

    rate_rps: float
    """Mean arrivals per second."""
    duration_s: float | None = None
    """Arrivals from 0 to this time. None: `requests` of them."""
    requests: int | None = None
    """At most so many."""
    seed: int = 0
    arrivals: Arrivals = PoissonArrivals()
    prompt: Length = LognormalLength(median=600, sigma=1.0)
    """A prompt's own tokens; those of prefix, conversation and media are added."""
    output: Length = LognormalLength(median=150, sigma=0.8, high=16_384)
    output_tokens_max: int | None = None
    """What every client asks for at most; longer answers end there."""
    tenants: NamesConfig | None = None
    models: NamesConfig | None = None
    adapters: NamesConfig | None = None
    endpoints: dict[Endpoint, float] = {}
    """Weights; empty: all chat. Embeddings generate no token."""
    priorities: dict[Priority, float] = {}
    """Weights; empty: clients ask for none."""
    stream_ratio: float = 1.0
    contents: ContentsConfig | None = None
    prefixes: PrefixesConfig | None = None
    conversations: ConversationsConfig | None = None
    media: MediaConfig | None = None
    block_tokens: int = 16
    """Of the prefix blocks that are told where prompts share anything."""

    def __post_init__(self) -> None:
        require_positive("rate_rps", self.rate_rps, "requests per second")
        require_range("rate_rps", self.rate_rps, 1e-9, 1e9)
        if self.duration_s is None and self.requests is None:
            raise ConfigError("duration_s", None, "a time, or a number of requests")
        if self.duration_s is not None:
            require_positive("duration_s", self.duration_s)
        if self.requests is not None:
            require_range("requests", self.requests, 1, _COUNT_MAX)
        require_range("stream_ratio", self.stream_ratio, 0.0, 1.0)
        require_range("block_tokens", self.block_tokens, 1, 1 << 20)
        if self.output_tokens_max is not None:
            require_range("output_tokens_max", self.output_tokens_max, 1, TOKENS_MAX)
        for name in ("endpoints", "priorities"):
            if weights := getattr(self, name):
                _require_weights(name, weights)


def _require_weights(key: str, weights: Mapping[str, float]) -> None:
    for name, weight in weights.items():
        require_at_least(f"{key}.{name}", weight, 0.0)
    require_positive(key, sum(weights.values()), "in all")
