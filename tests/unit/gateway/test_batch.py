"""A batch: one body of many, one answer for each, and every token counted once."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mileage.core.events import Cancelled, Failed, Finished
from mileage.gateway.batch import ANSWER_BYTES_MAX
from tests.support.shared_generation import JSON, Client, World, in_loop


def vectors(*numbers: float, tokens: int | None = None, **fields: Any) -> dict[str, Any]:
    """An engine's answer with an item for each number."""
    data = [
        {"object": "embedding", "index": index, "embedding": [number]}
        for index, number in enumerate(numbers)
    ]
    answer = {"object": "list", "model": "m", "data": data, **fields}
    if tokens is not None:
        answer["usage"] = {"prompt_tokens": tokens, "total_tokens": tokens}
    return answer


def embed(world: World, *values: Any, **fields: Any) -> list[Client]:
    """Send one request for each input, held, and then all as one call."""
    world.controller.holding = True
    clients = [world.ask("embeddings", input=value, **fields) for value in values]
    world.wake()
    return clients


def got(client: Client) -> list[float]:
    """The numbers that the client got; its indexes are from 0."""
    data = client.json["data"]
    assert [item["index"] for item in data] == list(range(len(data)))
    return [item["embedding"][0] for item in data]


def test_all_inputs_go_in_one_call_and_each_client_gets_its_own() -> None:
    def story() -> None:
        world = World()
        a, b, c = embed(world, "a", ["b1", "b2"], ["c"], dimensions=1)
        assert world.engine.fields == {
            "model": "m",
            "input": ["a", "b1", "b2", "c"],
            "dimensions": 1,
        }
        world.engine.answer(vectors(1, 2, 3, 4, tokens=8, id="e-1"))
        world.flush()
        assert [got(client) for client in (a, b, c)] == [[1], [2, 3], [4]]
        assert {client.json["id"] for client in (a, b, c)} == {"e-1"}
        assert [client.json["usage"]["prompt_tokens"] for client in (a, b, c)] == [2, 4, 2]
        rows = [world.record(client) for client in (a, b, c)]
        assert [row.prompt_tokens for row in rows] == [2, 4, 2]
        assert {(row.merged_into, row.merged_members) for row in rows} == {(None, 3)}
        assert world.log.intents == [a.id, b.id, c.id]
        assert world.told(Finished) == [Finished(a.id, 8)]
        assert world.metrics.merged.values == {("batch",): 2}

    in_loop(story)


def test_tokens_of_tokens() -> None:
    def story() -> None:
        world = World()
        a, b = embed(world, [1, 2, 3], [[4], [5, 6]])
        assert world.engine.fields["input"] == [[1, 2, 3], [4], [5, 6]]
        world.engine.answer(vectors(1, 2, 3))
        world.flush()
        assert [got(a), got(b)] == [[1], [2, 3]]
        assert "usage" not in a.json
        assert world.record(a).prompt_tokens is None

    in_loop(story)


@pytest.mark.parametrize("tokens", [0, 1, 2, 5, 100, 101])
def test_the_engines_count_is_shared_out_exactly(tokens: int) -> None:
    def story() -> None:
        world = World()
        clients = embed(world, "a", "b" * 50, "c" * 7)
        world.engine.answer(vectors(1, 2, 3, tokens=tokens))
        world.flush()
        shares = [client.json["usage"]["prompt_tokens"] for client in clients]
        assert sum(shares) == tokens
        assert sum(world.record(client).prompt_tokens or 0 for client in clients) == tokens
        if tokens >= 3:
            assert min(shares) >= 1
        assert shares[1] == max(shares)

    in_loop(story)


def test_items_that_come_in_another_order_are_told_by_their_index() -> None:
    def story() -> None:
        world = World()
        a, b = embed(world, "a", "b")
        answer = vectors(1, 2)
        answer["data"].reverse()
        world.engine.answer(answer)
        world.flush()
        assert [got(a), got(b)] == [[1], [2]]

    in_loop(story)


def test_items_without_an_index_come_in_order() -> None:
    def story() -> None:
        world = World()
        a, b = embed(world, "a", "b")
        world.engine.answer({"data": [{"embedding": [1]}, {"embedding": [2]}]})
        world.flush()
        assert [got(a), got(b)] == [[1], [2]]

    in_loop(story)


def test_the_text_of_an_embedding_passes_untouched() -> None:
    def story() -> None:
        world = World()
        a, _ = embed(world, "a", "b", encoding_format="base64")
        item = b'{"object":"embedding","index":%d,"embedding":"AACAPw==","x":1e-7}'
        world.engine.answer(b'{"data":[' + item % 0 + b"," + item % 1 + b"]}")
        world.flush()
        assert a.got == b'{"data":[' + item % 0 + b"]}"

    in_loop(story)


def test_one_that_left_before_is_not_sent() -> None:
    def story() -> None:
        world = World()
        world.controller.holding = True
        a, b, c = (world.ask("embeddings", input=text) for text in "abc")
        a.leave()
        world.wake()
        assert world.engine.fields["input"] == ["b", "c"]
        world.engine.answer(vectors(2, 3, tokens=4))
        world.flush()
        assert [got(b), got(c)] == [[2], [3]]

    in_loop(story)


def test_one_that_is_left_alone_is_sent_as_it_came() -> None:
    def story() -> None:
        world = World()
        world.controller.holding = True
        a, b = (world.ask("embeddings", input=text) for text in "ab")
        a.leave()
        world.wake()
        assert world.engine.fields["input"] == "b"
        world.engine.answer(vectors(2, tokens=4))
        world.flush()
        assert got(b) == [2]
        assert world.record(b).merged_members is None

    in_loop(story)


def test_what_was_made_for_one_that_left_is_still_on_record() -> None:
    def story() -> None:
        world = World()
        a, b, c = embed(world, "a", "b", "c")
        b.leave()
        world.engine.answer(vectors(1, 2, 3, tokens=6))
        world.flush()
        assert [got(a), got(c)] == [[1], [3]]
        assert c.json["usage"]["prompt_tokens"] == 2
        assert [world.record(client).prompt_tokens for client in (a, b, c)] == [4, None, 2]

    in_loop(story)


def test_the_same_request_shares_its_leaders_part() -> None:
    def story() -> None:
        world = World()
        a, b, same = embed(world, "a", "b", "a")
        assert world.engine.fields["input"] == ["a", "b"]
        world.engine.answer(vectors(1, 2, tokens=4))
        world.flush()
        assert [got(client) for client in (a, b, same)] == [[1], [2], [1]]
        rows = [world.record(client) for client in (a, b, same)]
        assert [row.merged_into for row in rows] == [None, None, a.id]
        assert sum(row.prompt_tokens or 0 for row in rows if row.merged_into is None) == 4

    in_loop(story)


def test_a_failed_attempt_is_made_again_with_those_who_still_wait() -> None:
    def story() -> None:
        world = World()
        world.controller.retries = 1
        a, b, c = embed(world, "a", "b", "c")
        b.leave()
        world.calls[0].fail("broken")
        assert world.calls[1].fields["input"] == ["a", "c"]
        world.calls[1].answer(vectors(1, 3))
        world.flush()
        assert [got(a), got(c)] == [[1], [3]]

    in_loop(story)


@pytest.mark.parametrize("status", [401, 404, 429, 501])
def test_an_error_about_the_call_goes_to_all(status: int) -> None:
    def story() -> None:
        world = World()
        clients = embed(world, "a", "b")
        world.engine.answer({"error": {"message": "no"}}, status=status)
        world.flush()
        assert {client.status for client in clients} == {status}

    in_loop(story)


# --- each one alone -------------------------------------------------------------------------------

GOOD = vectors(1, 2, 3)


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        pytest.param(400, {"error": {"message": "bad"}}, id="an error"),
        pytest.param(500, {"error": {"message": "bad"}}, id="a crash"),
        pytest.param(200, b"no json", id="no JSON"),
        pytest.param(200, GOOD | {"data": GOOD["data"][:2]}, id="an item too few"),
        pytest.param(200, GOOD | {"data": GOOD["data"][:2] * 2}, id="an index twice"),
        pytest.param(200, GOOD | {"data": [{"index": "0"}] * 3}, id="an index that is none"),
        pytest.param(200, {"object": "list"}, id="no items"),
    ],
)
def test_what_the_engine_does_not_take_whole_is_asked_for_one_by_one(
    status: int, answer: Any
) -> None:
    def story() -> None:
        world = World()
        clients = embed(world, "a", "bad", "c")
        world.engine.answer(answer, status=status)
        alone = world.calls[1:]
        assert [call.fields["input"] for call in alone] == ["a", "bad", "c"]
        alone[0].answer(vectors(1, tokens=3))
        alone[1].answer({"error": {"message": "bad item"}}, status=400)
        assert not world.told(Finished)
        alone[2].answer(vectors(3, tokens=4))
        world.flush()
        assert [client.status for client in clients] == [200, 400, 200]
        assert clients[1].json["error"]["message"] == "bad item"
        rows = [world.record(client) for client in clients]
        assert [row.prompt_tokens for row in rows] == [3, None, 4]
        assert {(row.merged_into, row.merged_members) for row in rows} == {(None, None)}
        assert {row.attempts for row in rows} == {2}
        assert world.told(Finished) == [Finished(clients[0].id, 7)]
        assert world.told(Cancelled) == []
        assert not world.driver.exchanges

    in_loop(story)


def refused(world: World, *values: str) -> list[Client]:
    """Requests whose batch was refused."""
    clients = embed(world, *values)
    world.engine.answer({"error": {"message": "no"}}, status=400)
    return clients


def test_only_a_few_are_asked_for_at_once() -> None:
    def story() -> None:
        world = World()
        refused(world, *"abcdefg")
        assert len(world.calls) == 1 + 4
        world.calls[1].answer(vectors(1))
        world.calls[2].fail()
        assert len(world.calls) == 1 + 6

    in_loop(story)


def test_when_none_of_them_is_counted_the_controller_is_told_that_all_are_gone() -> None:
    def story() -> None:
        world = World()
        clients = refused(world, "a", "b")
        world.calls[1].answer({"error": {"message": "no"}}, status=400)
        world.calls[2].fail("timeout")
        world.flush()
        assert [client.status for client in clients] == [400, 504]
        assert world.record(clients[1]).outcome == "failed"
        assert world.told(Cancelled) == [Cancelled(client.id) for client in clients]
        assert world.told(Failed) == []

    in_loop(story)


def test_those_who_leave_are_not_asked_for() -> None:
    def story() -> None:
        world = World()
        clients = refused(world, *"abcdef")
        clients[5].leave()
        clients[0].leave()
        assert world.calls[1].aborted
        assert [call.fields["input"] for call in world.calls[1:]] == ["a", "b", "c", "d", "e"]
        for call in world.calls[2:]:
            call.answer(vectors(1, tokens=1))
        world.flush()
        assert [client.status for client in clients] == [None, 200, 200, 200, 200, None]
        assert world.told(Finished) == [Finished(clients[0].id, 4)]
        assert world.told(Cancelled) == [Cancelled(clients[5].id), Cancelled(clients[0].id)]
        assert not world.driver.orphans

    in_loop(story)


def test_when_the_last_one_leaves_what_the_others_got_is_told() -> None:
    def story() -> None:
        world = World()
        first, last = refused(world, "a", "b")
        world.calls[1].answer(vectors(1, tokens=5))
        last.leave()
        world.flush()
        assert world.calls[2].aborted
        assert world.told(Cancelled) == [Cancelled(last.id)]
        assert world.told(Finished) == [Finished(first.id, 5)]
        assert not world.driver.exchanges

    in_loop(story)


def test_when_all_have_left_nothing_goes_on() -> None:
    def story() -> None:
        world = World()
        clients = refused(world, "a", "b")
        for client in clients:
            client.leave()
        assert [call.aborted for call in world.calls[1:]] == [True, True]
        assert world.told(Cancelled) == [Cancelled(client.id) for client in clients]
        assert not world.driver.orphans

    in_loop(story)


def test_the_same_request_twice_is_asked_for_once_also_alone() -> None:
    def story() -> None:
        world = World()
        a, b, same = refused(world, "a", "b", "a")
        assert [call.fields["input"] for call in world.calls[1:]] == ["a", "b"]
        a.leave()
        assert not world.calls[1].aborted
        world.calls[1].answer(vectors(1, tokens=1))
        world.calls[2].answer(vectors(2, tokens=1))
        world.flush()
        assert [got(b), got(same)] == [[2], [1]]
        assert world.record(a).merged_into == same.id
        assert world.record(same).merged_into is None

    in_loop(story)


def test_an_answer_too_large_to_take_apart_is_asked_for_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mileage.gateway.batch_call.ANSWER_BYTES_MAX", 100)
    monkeypatch.setattr("mileage.gateway.separate.ANSWER_BYTES_MAX", 100)

    def story() -> None:
        world = World()
        a, b, c = embed(world, "a", "b", "c")
        world.engine.head(200, JSON).send(b"x" * 101)
        assert world.calls[0].aborted
        small = {"data": [{"index": 0, "embedding": [1]}]}
        world.calls[1].answer(small)
        world.calls[2].head(200, JSON).send(b"x" * 101)
        assert world.calls[2].aborted
        world.calls[3].head(200, JSON).end(b"x" * 101)
        world.flush()
        assert [client.status for client in (a, b, c)] == [200, 502, 502]

    in_loop(story)


def test_a_large_answer_is_taken_apart_whole() -> None:
    def story() -> None:
        world = World()
        clients = embed(world, *(f"text {number}" for number in range(64)))
        data = [
            {"object": "embedding", "index": index, "embedding": [index / 7] * 4096}
            for index in range(64)
        ]
        body = msgspec.json.encode({"object": "list", "data": data, "model": "m"})
        assert len(body) > 2 * 1024 * 1024
        world.engine.head(200, [(b"content-length", b"%d" % len(body))])
        world.engine.send(body[:-7], now_s=1.0).end(body[-7:])
        world.flush()
        assert [got(client) for client in clients] == [[index / 7] for index in range(64)]
        assert len(body) < ANSWER_BYTES_MAX

    in_loop(story)
