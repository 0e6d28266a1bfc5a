"""planned_calls(): what is to be sent for each request of a workload, made as it is asked for."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator
from typing import Final

from mileage.core.errors import ConfigError
from mileage.core.request import Endpoint
from mileage.loadgen.bodies import PATHS, Bodies
from mileage.loadgen.media import Media
from mileage.loadgen.plan_options import PlanOptions, PlanTally
from mileage.loadgen.planned_call import PlannedCall
from mileage.loadgen.prompts import WORDS_MAX, Prompts
from mileage.loadgen.token_lengths import TokenLengths
from mileage.policy.modality import AUDIO_FRAMES_PER_TOKEN, IMAGE_PATCHES_PER_TOKEN
from mileage.workload.trace_request import TraceRequest

__all__ = ["planned_calls"]

_ANY_TENANT: Final = "*"
_UNIT: Final = 2.0**-53


def planned_calls(
    requests: Iterable[TraceRequest], options: PlanOptions, tally: PlanTally | None = None
) -> Iterator[PlannedCall]:
    """A call for each request, in their order and at their times; memory does not grow with them.

    Equal requests, options and places in the workload give equal calls. Requests with one
    `content_id` have one body, where they are of one length, model and user. Raises ConfigError for
    a shared prefix that is asked for where the workload tells itself what its prompts share, and
    whatever reading the workload raises, where it comes to it.
    """
    plan = _Plan(options, tally if tally is not None else PlanTally())
    for index, request in enumerate(requests):
        yield plan.call(index, request)


class _Plan:
    """Makes one call after the other."""

    def __init__(self, options: PlanOptions, tally: PlanTally) -> None:
        self._options, self._tally = options, tally
        self._bodies = Bodies(options)
        self._prompts = Prompts(options.seed)
        self._media = Media(options.seed)
        self._tenant_keys = {
            tenant: (b"authorization", value.encode("latin-1"))
            for tenant, value in options.tenant_keys.items()
        }
        self._any_key = self._tenant_keys.pop(_ANY_TENANT, None)

    def call(self, index: int, request: TraceRequest) -> PlannedCall:
        """The call for the request at this place."""
        options = self._options
        endpoint: Endpoint = options.endpoint or request.endpoint
        adapter = request.adapter if options.use_adapters else None
        named = request.model if options.keep_models else None
        model = adapter or named or options.model
        stream = request.stream if options.stream is None else options.stream
        output_tokens = max(1, request.output_tokens)
        if endpoint == "embeddings":
            stream, output_tokens = False, 0
        lengths = options.lengths.of(endpoint, model)
        image, audio, text_tokens = self._heard_and_seen(endpoint, request, index)
        body = self._bodies.body(
            endpoint,
            self._texts(endpoint, request, index, text_tokens, lengths),
            model=model,
            output_tokens=output_tokens,
            stream=stream,
            user=request.tenant if options.tenant_user else None,
            image=image,
            audio=audio,
        )
        tally = self._tally
        tally.calls += 1
        tally.body_bytes += len(body)
        tally.prompt_tokens += request.prompt_tokens
        return PlannedCall(
            index=index,
            scheduled_s=request.arrived_s,
            path=PATHS[endpoint],
            body=body,
            headers=self._headers(request, endpoint, index),
            endpoint=endpoint,
            stream=stream,
            tenant=request.tenant,
            model=model,
            adapter=adapter,
            prompt_tokens=request.prompt_tokens,
            output_tokens=output_tokens,
            cancel_after_s=self._cancel_after_s(index),
        )

    def _heard_and_seen(
        self, endpoint: Endpoint, request: TraceRequest, index: int
    ) -> tuple[bytes | None, bytes | None, int]:
        """Image, audio, and the tokens that are left to the text."""
        patches, frames = request.image_patches, request.audio_frames
        if not patches and not frames:
            return None, None, request.prompt_tokens
        if endpoint != "chat":
            self._tally.media_as_text += 1
            return None, None, request.prompt_tokens
        owner = _owner(request, index)
        image = self._media.png(patches, owner) if patches else None
        audio = self._media.wav(frames, owner) if frames else None
        weight = math.ceil(patches / IMAGE_PATCHES_PER_TOKEN)
        weight += math.ceil(frames / AUDIO_FRAMES_PER_TOKEN)
        return image, audio, max(1, request.prompt_tokens - weight)

    def _texts(
        self,
        endpoint: Endpoint,
        request: TraceRequest,
        index: int,
        tokens: int,
        lengths: TokenLengths,
    ) -> list[bytes]:
        count = self._options.embedding_inputs if endpoint == "embeddings" else 1
        if count == 1:
            return [self._text(request, _owner(request, index), tokens, lengths)]
        owner = _owner(request, index)
        share, rest = divmod(tokens, count)
        return [
            self._text(request, f"{owner} {i}", max(1, share + (i < rest)), lengths)
            for i in range(count)
        ]

    def _text(self, request: TraceRequest, owner: str, tokens: int, lengths: TokenLengths) -> bytes:
        words = lengths.words_of(tokens)
        if words > WORDS_MAX:
            self._tally.clipped += 1
        elif words == 1 and lengths.tokens_of(1) > tokens + 0.5:
            self._tally.too_short += 1
        ratio = self._options.shared_prefix_ratio
        if not request.prefix_blocks:
            shared = round(words * ratio)
            return self._prompts.text(words, owner, shared_words=shared)
        if ratio:
            raise ConfigError(
                "shared_prefix_ratio", ratio, "0: the workload tells what its prompts share"
            )
        return self._prompts.text(
            words,
            owner,
            blocks=request.prefix_blocks,
            block_words=lengths.block_words_of(request.block_tokens),
        )

    def _headers(
        self, request: TraceRequest, endpoint: Endpoint, index: int
    ) -> tuple[tuple[bytes, bytes], ...]:
        options = self._options
        headers = list(options.headers)
        if endpoint == "messages":
            headers.append((b"anthropic-version", b"2023-06-01"))
        if options.tenant_header is not None:
            value = request.tenant.encode("utf-8").replace(b"\r", b" ").replace(b"\n", b" ")
            headers.append((options.tenant_header.encode(), value))
        key = self._tenant_keys.get(request.tenant, self._any_key)
        if key is not None:
            headers.append(key)
        elif self._tenant_keys:
            self._tally.no_key(request.tenant)
        if options.priority_header is not None and request.priority is not None:
            headers.append((options.priority_header.encode(), request.priority.encode()))
        if options.traceparent:
            headers.append((b"traceparent", self._traceparent(index)))
        return tuple(headers)

    def _traceparent(self, index: int) -> bytes:
        """W3C Trace Context, level 1: version, trace id, parent id, sampled."""
        text = f"trace {self._options.seed} {index}".encode()
        digits = hashlib.blake2b(text, digest_size=24).hexdigest()
        return f"00-{digits[:32]}-{digits[32:]}-01".encode()

    def _cancel_after_s(self, index: int) -> float | None:
        options = self._options
        if not options.cancel_ratio:
            return None
        digest = hashlib.blake2b(f"leave {options.seed} {index}".encode(), digest_size=16).digest()
        # 53 bits each: [0, 1).
        chance = (int.from_bytes(digest[:8], "little") >> 11) * _UNIT
        place = (int.from_bytes(digest[8:], "little") >> 11) * _UNIT
        if chance >= options.cancel_ratio:
            return None
        return -math.log1p(-place) * options.cancel_after_s


def _owner(request: TraceRequest, index: int) -> str:
    """Whose the words are that are shared with nothing else."""
    if request.content_id is not None:
        return f"content {request.content_id}"
    return f"request {index}"
