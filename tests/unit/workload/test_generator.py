"""Synthetic workloads: reproducible, streaming, with the stated shares of what is shared."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from itertools import islice, pairwise

import pytest
from msgspec.structs import replace

from mileage.core.errors import ConfigError
from mileage.policy.modality import AUDIO_FRAMES_PER_TOKEN, IMAGE_PATCHES_PER_TOKEN
from mileage.workload.synthetic import config as synthetic_config
from mileage.workload.synthetic.arrivals import GammaArrivals
from mileage.workload.synthetic.config import (
    ContentsConfig,
    ConversationsConfig,
    MediaConfig,
    NamesConfig,
    PrefixesConfig,
    SyntheticConfig,
)
from mileage.workload.synthetic.generator import generate
from mileage.workload.synthetic.lengths import FixedLength, UniformLength, mean_tokens
from mileage.workload.trace_check import fault_of

BASE = SyntheticConfig(rate_rps=10.0, requests=3000, seed=4)
RICH = replace(
    BASE,
    tenants=NamesConfig(count=5, alpha=1.0),
    models=NamesConfig(weights={"a": 3.0, "b": 1.0}),
    adapters=NamesConfig(count=3),
    endpoints={"chat": 3.0, "embeddings": 1.0},
    priorities={"high": 1.0, "low": 1.0},
    stream_ratio=0.5,
    contents=ContentsConfig(count=50, ratio=0.3),
    prefixes=PrefixesConfig(count=8, tokens=UniformLength(low=100, high=900), ratio=0.7),
    conversations=ConversationsConfig(turns=3.0, think_s=5.0, ratio=0.5),
    media=MediaConfig(image_ratio=0.2, audio_ratio=0.1),
    output_tokens_max=300,
)


def test_equal_descriptions_give_equal_requests() -> None:
    assert list(generate(RICH)) == list(generate(RICH))
    assert list(generate(RICH)) != list(generate(replace(RICH, seed=5)))


def test_what_is_made_is_a_valid_trace() -> None:
    requests = list(generate(RICH))
    assert [f for r in requests if (f := fault_of(r))] == []
    times = [r.arrived_s for r in requests]
    assert times == sorted(times)
    assert len(requests) == 3000


def test_other_lengths_leave_the_arrivals_as_they_are() -> None:
    other = replace(RICH, prompt=FixedLength(tokens=5), media=None, tenants=None)
    assert [r.arrived_s for r in generate(other)] == [r.arrived_s for r in generate(RICH)]
    assert [r.arrived_s for r in generate(BASE)] == [r.arrived_s for r in generate(RICH)]


def test_a_duration_ends_it() -> None:
    made = list(generate(SyntheticConfig(rate_rps=50.0, duration_s=20.0)))
    assert abs(len(made) - 1000) < 4 * math.sqrt(1000)
    assert made[-1].arrived_s < 20.0


def test_it_streams_without_end_in_sight() -> None:
    endless = SyntheticConfig(rate_rps=1.0, duration_s=1e9, tenants=NamesConfig(count=10**6))
    assert len(list(islice(generate(endless), 10))) == 10


def test_lengths_are_those_of_the_description() -> None:
    requests = list(generate(replace(BASE, requests=20_000)))
    assert sum(r.prompt_tokens for r in requests) / 20_000 == pytest.approx(
        mean_tokens(BASE.prompt), rel=0.05
    )
    assert not any(r.prefix_blocks for r in requests)


def test_tenants_are_as_popular_as_stated() -> None:
    counts = Counter(r.tenant for r in generate(replace(RICH, conversations=None)))
    harmonic = 1 + 1 / 2 + 1 / 3 + 1 / 4 + 1 / 5
    assert len(counts) == 5
    assert counts["tenant-1"] / 3000 == pytest.approx(1 / harmonic, abs=0.04)


def test_embeddings_generate_nothing_and_do_not_stream() -> None:
    kinds = defaultdict(list)
    for request in generate(RICH):
        kinds[request.endpoint].append(request)
    assert len(kinds["embeddings"]) / 3000 == pytest.approx(0.25, abs=0.04)
    assert {r.output_tokens for r in kinds["embeddings"]} == {0}
    assert not any(r.stream for r in kinds["embeddings"])
    assert min(r.output_tokens for r in kinds["chat"]) >= 1
    assert max(r.output_tokens for r in kinds["chat"]) <= 300


def test_equal_contents_are_equal_requests() -> None:
    config = replace(BASE, contents=ContentsConfig(count=20, alpha=1.0), prefixes=RICH.prefixes)
    seen: dict[int | None, tuple[object, ...]] = {}
    for request in generate(config):
        same = (request.prompt_tokens, request.output_tokens, request.prefix_blocks)
        assert seen.setdefault(request.content_id, same) == same
    assert len(seen) == 20


def test_prefixes_are_shared_and_added_to_the_prompt() -> None:
    prefixes = PrefixesConfig(count=1, tokens=FixedLength(tokens=100))
    config = replace(BASE, requests=50, prompt=FixedLength(tokens=30), prefixes=prefixes)
    requests = list(generate(config))
    assert {r.prompt_tokens for r in requests} == {130}
    # 100 tokens are 6 whole blocks of 16: the 7th holds the request's own tokens, too.
    assert len({r.prefix_blocks[:6] for r in requests}) == 1
    assert len({r.prefix_blocks[6:] for r in requests}) == 50
    assert {len(r.prefix_blocks) for r in requests} == {9}
    rest = [block for r in requests for block in r.prefix_blocks[6:]]
    assert len(set(rest)) == len(rest)


def test_a_turn_begins_with_all_that_was_said_before() -> None:
    config = replace(BASE, conversations=ConversationsConfig(turns=5.0, think_s=1.0))
    talks = defaultdict(list)
    for request in generate(config):
        talks[request.conversation].append(request)
    turns = [talk for talk in talks.values() if len(talk) > 1]
    assert turns
    for talk in turns:
        for before, after in pairwise(talk):
            said = before.prompt_tokens + before.output_tokens
            assert after.prompt_tokens > said
            whole = before.prompt_tokens // 16
            assert after.prefix_blocks[:whole] == before.prefix_blocks[:whole]
            if before.prompt_tokens % 16:  # its last block was partial, and is another one now
                assert after.prefix_blocks[whole] != before.prefix_blocks[whole]


def test_conversations_leave_the_arrival_process_as_it_is() -> None:
    bursty = replace(BASE, arrivals=GammaArrivals(cv=3.0))
    talking = replace(bursty, conversations=ConversationsConfig(turns=4.0))
    assert [r.arrived_s for r in generate(talking)] == [r.arrived_s for r in generate(bursty)]


def test_turns_are_geometric_with_the_stated_mean() -> None:
    talks = ConversationsConfig(turns=4.0, think_s=0.5, context_tokens_max=10**8)
    config = replace(BASE, requests=20_000, conversations=talks, prompt=FixedLength(tokens=1))
    counts = Counter(r.conversation for r in generate(config))
    # The variance of a geometric number of turns is (1 - p) / p**2: 12 where p is 1/4.
    assert 20_000 / len(counts) == pytest.approx(4.0, abs=4 * math.sqrt(12 / 5000))


def test_a_conversation_ends_before_it_outgrows_the_context() -> None:
    talks = ConversationsConfig(turns=1000.0, think_s=0.0, context_tokens_max=4000)
    config = replace(
        BASE,
        conversations=talks,
        prompt=FixedLength(tokens=500),
        output=FixedLength(tokens=500),
    )
    requests = list(generate(config))
    assert max(r.prompt_tokens for r in requests) == 3500
    assert len({r.conversation for r in requests}) == 3000 / 4


def test_media_are_in_the_prompt_by_their_normalised_load() -> None:
    media = MediaConfig(
        image_ratio=0.4,
        image_patches=FixedLength(tokens=401),
        audio_ratio=0.5,
        audio_frames=FixedLength(tokens=1000),
    )
    kinds: Counter[tuple[bool, bool]] = Counter()
    for request in generate(replace(BASE, prompt=FixedLength(tokens=10), media=media)):
        image, audio = request.image_patches > 0, request.audio_frames > 0
        kinds[image, audio] += 1
        assert request.prompt_tokens == 10 + 101 * image + 250 * audio
    assert kinds[True, True] / 3000 == pytest.approx(0.2, abs=0.03)
    assert kinds[False, False] / 3000 == pytest.approx(0.3, abs=0.03)


def test_the_units_of_media_are_those_of_the_policies() -> None:
    assert synthetic_config.IMAGE_PATCHES_PER_TOKEN == IMAGE_PATCHES_PER_TOKEN
    assert synthetic_config.AUDIO_FRAMES_PER_TOKEN == AUDIO_FRAMES_PER_TOKEN


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        pytest.param({"rate_rps": 0.0}, "rate_rps", id="no rate"),
        pytest.param({"requests": None}, "duration_s", id="no end"),
        pytest.param({"duration_s": math.inf}, "duration_s", id="no end in sight"),
        pytest.param({"stream_ratio": 1.5}, "stream_ratio", id="more than all"),
        pytest.param({"endpoints": {"chat": -1.0}}, "endpoints.chat", id="negative weight"),
        pytest.param({"priorities": {"high": 0.0}}, "priorities", id="no weight"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, object], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        SyntheticConfig(**{"rate_rps": 1.0, "requests": 1, **changes})  # type: ignore[arg-type]
    assert caught.value.key == key
