"""generate(): the requests of a synthetic workload, one after another, in constant memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from random import Random

from mileage.core.request import Endpoint
from mileage.workload.synthetic.arrivals import arrival_times
from mileage.workload.synthetic.block_ids import CONTENT, CONVERSATION, prompt_blocks
from mileage.workload.synthetic.config import (
    AUDIO_FRAMES_PER_TOKEN,
    IMAGE_PATCHES_PER_TOKEN,
    NamesConfig,
    SyntheticConfig,
)
from mileage.workload.synthetic.conversations import Conversation, Conversations
from mileage.workload.synthetic.lengths import drawer
from mileage.workload.synthetic.names import names_of, weighted
from mileage.workload.synthetic.zipf import Zipf
from mileage.workload.trace_check import TOKENS_MAX
from mileage.workload.trace_request import TraceRequest

__all__ = ["generate"]


def generate(config: SyntheticConfig) -> Iterator[TraceRequest]:
    """The requests in the order of arrival; the same ones for equal configurations.

    Arrivals, lengths and each kind of popularity have random numbers of their own: other lengths
    leave the arrivals as they are. Memory does not grow with the number of requests.
    """
    times = arrival_times(config.arrivals, config.rate_rps, _rng(config, "arrivals"))
    if config.requests is not None:
        times = islice(times, config.requests)
    request = _Requests(config).request
    end_s = config.duration_s
    for number, arrived_s in enumerate(times):
        if end_s is not None and arrived_s >= end_s:
            return
        yield request(number, arrived_s)


def _rng(config: SyntheticConfig, purpose: str) -> Random:
    # A text as the seed goes through SHA-512: streams of one seed have nothing in common.
    return Random(f"{config.seed} {purpose}")  # noqa: S311 -- a workload, not secrets


class _Requests:
    """Makes one request after the other."""

    def __init__(self, config: SyntheticConfig) -> None:
        self._config = config
        self._lengths = _rng(config, "lengths")
        self._sharing = _rng(config, "sharing")
        self._media = _rng(config, "media")
        self._prompt, self._output = drawer(config.prompt), drawer(config.output)
        self._tenant = _names(config, config.tenants, "tenant")
        self._model = _names(config, config.models, "model")
        self._adapter = _names(config, config.adapters, "adapter")
        self._kind = _rng(config, "kinds")
        self._endpoint = weighted(config.endpoints) if config.endpoints else None
        self._priority = weighted(config.priorities) if config.priorities else None
        contents, prefixes = config.contents, config.prefixes
        self._contents = Zipf(contents.count, contents.alpha) if contents else None
        self._prefixes = Zipf(prefixes.count, prefixes.alpha) if prefixes else None
        self._prefix_tokens = drawer(prefixes.tokens) if prefixes else None
        talks = config.conversations
        self._talks = Conversations(talks, _rng(config, "conversations")) if talks else None
        self._shares = bool(contents or prefixes or talks)
        media = config.media
        self._patches = drawer(media.image_patches) if media else None
        self._frames = drawer(media.audio_frames) if media else None

    def request(self, number: int, arrived_s: float) -> TraceRequest:
        """The next request."""
        endpoint: Endpoint = self._endpoint(self._kind) if self._endpoint else "chat"
        tenant = self._tenant() if self._tenant else None
        talk = self._talk(number, arrived_s, tenant)
        content = self._content() if talk is None else None
        prefix, prefix_tokens = self._prefix(talk, content)
        lengths = self._lengths if content is None else self._own(f"content {content}")
        text, answer = self._prompt(lengths), self._output(lengths)
        patches, frames = self._drawn_media(content)
        before = talk.history_tokens if talk is not None else prefix_tokens
        media = -(-patches // IMAGE_PATCHES_PER_TOKEN) + -(-frames // AUDIO_FRAMES_PER_TOKEN)
        prompt = min(TOKENS_MAX, before + text + media)
        limit = self._config.output_tokens_max
        output = 0 if endpoint == "embeddings" else min(answer, limit or answer)
        if talk is not None and self._talks is not None:
            self._talks.said(talk, prompt, output, arrived_s)
            tenant = talk.tenant
        return TraceRequest(
            arrived_s=arrived_s,
            prompt_tokens=prompt,
            output_tokens=output,
            tenant=tenant or "default",
            model=self._model() if self._model else None,
            endpoint=endpoint,
            stream=self._streams(endpoint),
            output_tokens_max=limit,
            prefix_blocks=self._blocks(number, prompt, prefix, prefix_tokens, talk, content),
            block_tokens=self._config.block_tokens if self._shares else 0,
            content_id=content,
            conversation=talk.number if talk is not None else None,
            adapter=self._adapter() if self._adapter else None,
            priority=self._priority(self._kind) if self._priority else None,
            image_patches=patches,
            audio_frames=frames,
        )

    def _own(self, what: str) -> Random:
        """Random numbers that are the same each time for one thing: what it is need not be kept."""
        return _rng(self._config, what)

    def _talk(self, number: int, now_s: float, tenant: str | None) -> Conversation | None:
        talks = self._talks
        if talks is None:
            return None
        ready = talks.ready(now_s)
        if ready is not None:
            return ready
        if not talks.begins():
            return None
        prefix, tokens = self._drawn_prefix(self._sharing)
        return Conversation(number, prefix, tokens, tenant)

    def _content(self) -> int | None:
        contents = self._config.contents
        if contents is None or self._contents is None:
            return None
        if contents.ratio < 1.0 and self._sharing.random() >= contents.ratio:
            return None
        return self._contents.draw(self._sharing)

    def _prefix(self, talk: Conversation | None, content: int | None) -> tuple[int | None, int]:
        if talk is not None:
            return talk.prefix, talk.prefix_tokens
        own = self._sharing if content is None else self._own(f"prefix of content {content}")
        return self._drawn_prefix(own)

    def _drawn_prefix(self, rng: Random) -> tuple[int | None, int]:
        prefixes = self._config.prefixes
        if prefixes is None or self._prefixes is None or self._prefix_tokens is None:
            return None, 0
        if prefixes.ratio < 1.0 and rng.random() >= prefixes.ratio:
            return None, 0
        prefix = self._prefixes.draw(rng)
        return prefix, self._prefix_tokens(self._own(f"prefix {prefix}"))

    def _drawn_media(self, content: int | None) -> tuple[int, int]:
        media = self._config.media
        if media is None or self._patches is None or self._frames is None:
            return 0, 0
        rng = self._media if content is None else self._own(f"media of content {content}")
        patches = self._patches(rng) if rng.random() < media.image_ratio else 0
        frames = self._frames(rng) if rng.random() < media.audio_ratio else 0
        return patches, frames

    def _blocks(
        self,
        number: int,
        prompt_tokens: int,
        prefix: int | None,
        prefix_tokens: int,
        talk: Conversation | None,
        content: int | None,
    ) -> tuple[int, ...]:
        if not self._shares:
            return ()
        request: int | None
        if content is not None:
            kind, owner, request = CONTENT, content, None
        else:
            kind, owner, request = CONVERSATION, talk.number if talk else number, number
        return prompt_blocks(
            prompt_tokens,
            self._config.block_tokens,
            prefix=prefix,
            prefix_tokens=prefix_tokens,
            kind=kind,
            owner=owner,
            request=request,
        )

    def _streams(self, endpoint: Endpoint) -> bool:
        ratio = self._config.stream_ratio
        if endpoint == "embeddings":
            return False
        return ratio >= 1.0 or self._kind.random() < ratio


def _names(
    config: SyntheticConfig, names: NamesConfig | None, stem: str
) -> Callable[[], str] | None:
    if names is None:
        return None
    draw, rng = names_of(names, stem), _rng(config, stem)
    return lambda: draw(rng)
