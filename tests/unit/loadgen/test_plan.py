"""The plan: a workload's requests become calls with real prompts."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from mileage.core.errors import ConfigError
from mileage.loadgen.plan import planned_calls
from mileage.loadgen.plan_options import PlanOptions, PlanTally
from mileage.loadgen.planned_call import PlannedCall
from mileage.loadgen.token_lengths import LengthTable, TokenLengths
from mileage.workload.synthetic.config import (
    ContentsConfig,
    ConversationsConfig,
    MediaConfig,
    PrefixesConfig,
    SyntheticConfig,
)
from mileage.workload.synthetic.generator import generate
from mileage.workload.synthetic.lengths import FixedLength
from mileage.workload.trace_request import TraceRequest


def request(**fields: Any) -> TraceRequest:
    usual: dict[str, Any] = {"arrived_s": 0.5, "prompt_tokens": 100, "output_tokens": 7}
    return TraceRequest(**{**usual, **fields})


def plan(
    *requests: TraceRequest, tally: PlanTally | None = None, **fields: Any
) -> list[PlannedCall]:
    return list(planned_calls(requests, PlanOptions(**{"model": "m", **fields}), tally))


def fields_of(call: PlannedCall) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(call.body)
    return decoded


def text_of(call: PlannedCall) -> str:
    content = fields_of(call)["messages"][0]["content"]
    return content if isinstance(content, str) else content[0]["text"]


def shared_words(one: PlannedCall, other: PlannedCall) -> int:
    pairs = zip(text_of(one).split(), text_of(other).split(), strict=False)
    return len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))


def test_a_call_is_what_the_request_was() -> None:
    (call,) = plan(request(tenant="acme", stream=False))
    assert (call.index, call.scheduled_s, call.path) == (0, 0.5, b"/v1/chat/completions")
    assert (call.tenant, call.model, call.stream) == ("acme", "m", False)
    assert (call.prompt_tokens, call.output_tokens, call.cancel_after_s) == (100, 7, None)
    assert len(text_of(call).split()) == 100
    assert fields_of(call)["max_tokens"] == 7


def test_the_template_is_part_of_the_length() -> None:
    table = LengthTable(
        found={("chat", "m"): TokenLengths(overhead_tokens=30, source="probe")}, model="m"
    )
    tally = PlanTally()
    first, second = plan(request(), request(prompt_tokens=12), lengths=table, tally=tally)
    assert len(text_of(first).split()) == 70
    assert len(text_of(second).split()) == 1
    assert (tally.too_short, tally.calls, tally.prompt_tokens) == (1, 2, 112)


def test_requests_of_one_content_have_one_body() -> None:
    one, other, third = plan(
        request(content_id=5), request(content_id=5, arrived_s=9.0), request(content_id=6)
    )
    assert one.body == other.body != third.body


def test_requests_without_a_content_share_nothing() -> None:
    one, other = plan(request(), request())
    assert shared_words(one, other) <= 1


def test_equal_plans_are_equal_and_another_seed_shares_nothing() -> None:
    again = plan(request(), request(image_patches=64), seed=4)
    assert again == plan(request(), request(image_patches=64), seed=4)
    (other,) = plan(request(), seed=5)
    assert shared_words(again[0], other) <= 1


def test_blocks_of_a_trace_become_shared_text() -> None:
    one, other = plan(
        request(prompt_tokens=1400, prefix_blocks=(1, 2, 3), block_tokens=512),
        request(prompt_tokens=1100, prefix_blocks=(1, 2, 9), block_tokens=512),
    )
    assert 1024 <= shared_words(one, other) <= 1025
    assert [len(text_of(call).split()) for call in (one, other)] == [1400, 1100]


def test_blocks_are_as_long_as_their_tokens() -> None:
    lengths = TokenLengths(tokens_per_word=2.0, overhead_tokens=10)
    one, other = plan(
        request(prompt_tokens=1034, prefix_blocks=(1, 2), block_tokens=512),
        request(prompt_tokens=1034, prefix_blocks=(1, 3), block_tokens=512),
        lengths=LengthTable(found={("chat", "m"): lengths}, model="m"),
    )
    assert 256 <= shared_words(one, other) <= 257
    assert len(text_of(one).split()) == 512


@pytest.mark.parametrize("ratio", [0.25, 0.5, 1.0])
def test_a_share_of_each_prompt_can_be_the_same(ratio: float) -> None:
    one, other = plan(request(), request(prompt_tokens=200), shared_prefix_ratio=ratio)
    assert 100 * ratio <= shared_words(one, other) <= 100 * ratio + 1


def test_a_workload_that_tells_what_is_shared_is_not_overruled() -> None:
    with pytest.raises(ConfigError, match="shared_prefix_ratio"):
        plan(request(prefix_blocks=(1,), block_tokens=512), shared_prefix_ratio=0.5)


def test_turns_of_a_conversation_begin_with_what_was_said_before() -> None:
    workload = SyntheticConfig(
        rate_rps=1,
        requests=60,
        prompt=FixedLength(tokens=64),
        output=FixedLength(tokens=32),
        conversations=ConversationsConfig(turns=4, think_s=0.0),
        block_tokens=16,
    )
    requests = list(generate(workload))
    calls = plan(*requests)
    before: dict[int, tuple[TraceRequest, PlannedCall]] = {}
    followed = 0
    for asked, call in zip(requests, calls, strict=True):
        assert asked.conversation is not None
        if asked.conversation in before:
            last, last_call = before[asked.conversation]
            common = last.prompt_tokens // 16 * 16
            assert common <= shared_words(last_call, call) < common + 16
            followed += 1
        before[asked.conversation] = (asked, call)
    assert followed > 20


def test_system_prompts_are_shared_by_their_own_length() -> None:
    workload = SyntheticConfig(
        rate_rps=1,
        requests=40,
        prompt=FixedLength(tokens=50),
        prefixes=PrefixesConfig(count=1, tokens=FixedLength(tokens=160)),
    )
    first, *others = plan(*generate(workload))
    assert all(160 <= shared_words(first, other) <= 162 for other in others)


@pytest.mark.parametrize(
    ("fields", "asked", "model", "adapter"),
    [
        pytest.param({}, {"model": "gpt-4"}, "m", None, id="a trace's model is another one's"),
        pytest.param({"keep_models": True}, {"model": "b"}, "b", None, id="unless it is kept"),
        pytest.param({"keep_models": True}, {}, "m", None, id="kept, but it names none"),
        pytest.param({}, {"adapter": "lora-1"}, "lora-1", "lora-1", id="an adapter is a model"),
        pytest.param({"use_adapters": False}, {"adapter": "lora-1"}, "m", None, id="or is not"),
    ],
)
def test_which_model_is_asked_for(
    fields: dict[str, Any], asked: dict[str, Any], model: str, adapter: str | None
) -> None:
    (call,) = plan(request(**asked), **fields)
    assert (call.model, call.adapter, fields_of(call)["model"]) == (model, adapter, model)


def test_embeddings_are_no_stream_and_generate_nothing() -> None:
    (call,) = plan(request(endpoint="embeddings", output_tokens=0), embedding_inputs=3)
    assert (call.stream, call.output_tokens, call.path) == (False, 0, b"/v1/embeddings")
    texts = fields_of(call)["input"]
    assert [len(text.split()) for text in texts] == [34, 33, 33]
    assert len(set(texts)) == 3


def test_an_endpoint_and_streams_may_be_asked_for() -> None:
    (call,) = plan(request(), endpoint="completions", stream=False)
    assert (call.endpoint, call.path, call.stream) == ("completions", b"/v1/completions", False)


def test_media_take_their_part_of_the_tokens() -> None:
    (call,) = plan(request(prompt_tokens=200, image_patches=400, audio_frames=40))
    text, image, audio = fields_of(call)["messages"][0]["content"]
    assert len(text["text"].split()) == 200 - 100 - 10
    assert image["image_url"]["url"].startswith("data:image/png;base64,iVBOR")
    assert audio["input_audio"]["format"] == "wav"


def test_media_for_an_endpoint_that_takes_none_are_text() -> None:
    tally = PlanTally()
    (call,) = plan(
        request(prompt_tokens=200, image_patches=400), endpoint="completions", tally=tally
    )
    assert len(fields_of(call)["prompt"].split()) == 200
    assert tally.media_as_text == 1


def test_a_medium_that_weighs_more_than_the_prompt_leaves_one_word() -> None:
    (call,) = plan(request(prompt_tokens=10, image_patches=400))
    assert len(text_of(call).split()) == 1


def test_media_of_one_content_are_one() -> None:
    workload = SyntheticConfig(
        rate_rps=1,
        requests=20,
        contents=ContentsConfig(count=1),
        media=MediaConfig(image_ratio=1.0, image_patches=FixedLength(tokens=64)),
    )
    assert len({call.body for call in plan(*generate(workload))}) == 1


def test_tenants_have_keys_and_those_without_are_named() -> None:
    tally = PlanTally()
    calls = plan(
        *(request(tenant=name) for name in ("a", "b", "c", "b")),
        tenant_keys={"a": "Bearer k1"},
        tally=tally,
    )
    assert calls[0].headers == ((b"authorization", b"Bearer k1"),)
    assert [call.headers for call in calls[1:]] == [(), (), ()]
    assert tally.tenants_without_key == ["b", "c"]


def test_a_key_may_stand_for_all_other_tenants() -> None:
    tally = PlanTally()
    keys = {"a": "Bearer k1", "*": "Bearer k2"}
    calls = plan(request(tenant="a"), request(tenant="b"), tenant_keys=keys, tally=tally)
    assert [call.headers[0][1] for call in calls] == [b"Bearer k1", b"Bearer k2"]
    assert tally.tenants_without_key == []


def test_headers_tell_tenant_priority_and_trace() -> None:
    (call,) = plan(
        request(tenant="ac\r\nme", priority="low"),
        tenant_header="x-tenant",
        traceparent=True,
        headers=((b"x-run", b"1"),),
    )
    headers = dict(call.headers)
    assert headers[b"x-run"] == b"1"
    assert headers[b"x-tenant"] == b"ac  me"
    assert headers[b"x-mileage-priority"] == b"low"
    version, trace, parent, flags = headers[b"traceparent"].split(b"-")
    assert (version, len(trace), len(parent), flags) == (b"00", 32, 16, b"01")


def test_traces_differ() -> None:
    calls = plan(request(), request(), traceparent=True)
    assert len({call.headers for call in calls}) == 2


def test_as_many_clients_leave_as_asked_for() -> None:
    calls = plan(*[request()] * 2000, cancel_ratio=0.3, cancel_after_s=2.0, stream=True)
    left = [call.cancel_after_s for call in calls if call.cancel_after_s is not None]
    assert len(left) / len(calls) == pytest.approx(0.3, abs=0.04)
    assert sum(left) / len(left) == pytest.approx(2.0, rel=0.2)


def test_messages_tell_the_version_of_their_api() -> None:
    (call,) = plan(request(endpoint="messages"))
    assert dict(call.headers)[b"anthropic-version"] == b"2023-06-01"


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({"model": ""}, "model"),
        ({"shared_prefix_ratio": 1.1}, "shared_prefix_ratio"),
        ({"cancel_ratio": -0.1}, "cancel_ratio"),
        ({"embedding_inputs": 0}, "embedding_inputs"),
        ({"temperature": float("nan")}, "temperature"),
        ({"fields": {"messages": []}}, "fields"),
        ({"headers": ((b"content-length", b"1"),)}, "headers"),
        ({"headers": ((b"x", b"1\r\ny: 2"),)}, "headers"),
        ({"tenant_header": "a b"}, "tenant_header"),
        ({"tenant_keys": {"a": "k\n"}}, "tenant_keys"),
        ({"endpoint": "chats"}, "endpoint"),
        ({"server": "tgi"}, "server"),
    ],
)
def test_what_cannot_be_sent_is_refused(fields: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        PlanOptions(**{"model": "m", **fields})


def test_a_key_is_not_told_in_an_error() -> None:
    with pytest.raises(ConfigError) as caught:
        PlanOptions(model="m", tenant_keys={"a": "sk-secret\n"})
    assert "sk-secret" not in str(caught.value)


def test_a_workload_without_end_is_planned_as_it_is_asked_for() -> None:
    def endless() -> Iterator[TraceRequest]:
        for index in itertools.count():
            yield request(arrived_s=float(index))

    calls = planned_calls(endless(), PlanOptions(model="m"))
    assert [next(calls).scheduled_s for _ in range(3)] == [0.0, 1.0, 2.0]
