"""A shared generation: who gets what of it, who pays, and what ends it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from mileage.core.events import Cancelled, Failed, Finished, FirstToken
from mileage.gateway.refusals import Refusal
from tests.support.shared_generation import DONE, World, in_loop, token

USAGE = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
LAST = b"data: %b\n\n" % msgspec.json.encode({"choices": [], "usage": USAGE}) + DONE


def test_all_members_get_the_same_under_their_own_ids() -> None:
    def story() -> None:
        world = World()
        clients = [world.ask() for _ in range(3)]
        world.engine.head().send(token("a"), token("b"))
        assert {client.got for client in clients} == {token("a") + token("b")}
        world.engine.send(LAST)
        world.flush()

        assert {client.got for client in clients} == {token("a") + token("b") + DONE}
        assert all(client.ended for client in clients)
        assert [b"x-request-id: req-%x\r\n" % c.id in c.head for c in clients] == [True] * 3
        assert world.log.intents == [client.id for client in clients]
        assert world.told(FirstToken) == [FirstToken(clients[0].id)]
        assert [event.request_id for event in world.told(Finished)] == [clients[0].id]
        assert world.told(Cancelled) == []
        assert not world.driver.exchanges
        assert world.driver.kept_bytes == 0

    in_loop(story)


def test_the_tokens_are_on_record_whole_and_sums_count_them_once() -> None:
    def story() -> None:
        world = World()
        leader, member = world.ask(), world.ask()
        world.engine.head().send(token(), token(), LAST)

        first, second = world.record(leader), world.record(member)
        assert (first.prompt_tokens, second.prompt_tokens) == (7, 7)
        assert (first.merged_into, second.merged_into) == (None, leader.id)
        assert (first.merged_members, second.merged_members) == (2, 2)
        assert world.metrics.usage.prompt_tokens.values == {("unknown", "t"): 7}
        assert world.metrics.merged.values == {("same",): 1}

    in_loop(story)


def test_one_that_is_alone_says_nothing_of_others() -> None:
    def story() -> None:
        world = World()
        client = world.ask()
        world.engine.head().send(token(), LAST)
        end = world.record(client)
        assert (end.merged_into, end.merged_members) == (None, None)

    in_loop(story)


def test_a_late_joiner_gets_what_was_sent_and_its_own_times() -> None:
    def story() -> None:
        world = World()
        leader = world.ask()
        world.engine.head().send(token("a"), now_s=1.0).send(token("b"), now_s=2.0)
        late = world.ask()
        assert late.got == token("a") + token("b")
        world.engine.send(token("c"), now_s=3.0).send(LAST, now_s=4.0)

        assert world.record(leader).token_times == (500_000, 1, 1_500_000, 1, 2_500_000, 1)
        assert world.record(late).token_times == (0, 2, 2_500_000, 1)
        assert world.record(late).first_token_s == 0.0
        assert world.record(late).itl_max_s == 2.5
        (finished,) = world.told(Finished)
        assert (finished.itl_mean_s, finished.itl_p99_s) == (1.0, 1.0)

    in_loop(story)


def test_a_joiner_is_sent_nothing_before_its_intent_is_on_record() -> None:
    def story() -> None:
        world = World(closed=True)
        leader = world.ask()
        world.engine.head().send(token("a"))
        world.log.works = False
        late = world.ask()
        assert (late.status, late.ended) == (503, True)
        assert world.record(late).reason == "ledger_failed"
        assert [each.request_id for each in world.told(Cancelled)] == [late.id]
        world.log.works = True
        world.engine.send(LAST)
        world.flush()
        assert leader.got == token("a") + DONE

    in_loop(story)


def test_without_a_log_that_must_be_written_nobody_is_served() -> None:
    def story() -> None:
        world = World(closed=True)
        world.controller.holding = True
        clients = [world.ask() for _ in range(3)]
        world.log.works = False
        world.wake()
        world.flush()
        assert {client.status for client in clients} == {503}
        assert not world.calls
        assert [each.request_id for each in world.told(Cancelled)] == [
            client.id for client in clients
        ]

    in_loop(story)


def test_the_leader_leaves_and_the_next_one_has_the_tokens() -> None:
    def story() -> None:
        world = World()
        leader, member, third = world.ask(), world.ask(), world.ask()
        world.engine.head().send(token())
        leader.leave()
        assert not world.engine.aborted
        assert [each.request_id for each in world.told(Cancelled)] == [leader.id]
        world.engine.send(LAST)

        left = world.record(leader)
        assert (left.outcome, left.merged_into, left.merged_members) == ("cancelled", member.id, 3)
        assert left.output_tokens_counted == 1
        stayed = world.record(member)
        assert (stayed.outcome, stayed.merged_into, stayed.merged_members) == ("ok", None, 2)
        assert world.record(third).merged_into == member.id
        assert [event.request_id for event in world.told(Finished)] == [leader.id]
        assert not world.driver.orphans

    in_loop(story)


def test_one_can_join_after_the_leader_has_left() -> None:
    def story() -> None:
        world = World()
        leader, member = world.ask(), world.ask()
        world.engine.head().send(token())
        leader.leave()
        late = world.ask()
        world.engine.send(LAST)
        world.flush()
        assert late.got == member.got == token() + DONE

    in_loop(story)


def test_the_last_one_that_leaves_stops_the_engine() -> None:
    def story() -> None:
        world = World()
        leader, member = world.ask(), world.ask()
        world.engine.head().send(token())
        leader.leave()
        member.leave()
        assert world.engine.aborted
        assert [each.request_id for each in world.told(Cancelled)] == [leader.id, member.id]
        assert world.record(leader).merged_into == member.id
        assert world.record(member).merged_into is None
        assert not world.driver.orphans
        assert not world.driver.exchanges

    in_loop(story)


def test_one_that_is_held_with_others_can_leave() -> None:
    def story() -> None:
        world = World()
        world.controller.holding = True
        leader, member = world.ask(), world.ask()
        leader.leave()
        assert world.log.intents == []
        world.wake()
        assert world.log.intents == [member.id]
        world.engine.head().send(token(), LAST)
        world.flush()
        assert member.got == token() + DONE

    in_loop(story)


def test_a_refusal_of_what_is_held_goes_to_all() -> None:
    def story() -> None:
        world = World()
        world.controller.holding = True
        leader, member, third = world.ask(), world.ask(), world.ask()
        leader.leave()
        world.controller.handle = lambda event, now_s: world.controller.reject(leader.id)  # type: ignore[method-assign]
        world.wake()
        assert (member.status, third.status) == (503, 503)
        assert (leader.status, member.json["error"]["code"]) == (None, "queue_full")
        assert {world.record(c).outcome for c in (member, third)} == {"rejected"}
        assert not world.driver.exchanges

    in_loop(story)


def test_an_attempt_that_fails_before_the_first_byte_is_made_again_for_all() -> None:
    def story() -> None:
        world = World()
        world.controller.retries = 1
        clients = [world.ask() for _ in range(2)]
        world.calls[0].head().fail()
        clients.append(world.ask())
        world.calls[1].head().send(token(), LAST)
        world.flush()
        assert {client.got for client in clients} == {token() + DONE}
        assert {world.record(client).attempts for client in clients} == {2}

    in_loop(story)


def test_when_all_attempts_have_failed_all_are_told() -> None:
    def story() -> None:
        world = World()
        clients = [world.ask() for _ in range(2)]
        world.engine.head().fail("timeout")
        world.flush()
        assert {client.status for client in clients} == {504}
        assert {world.record(client).reason for client in clients} == {"timeout"}

    in_loop(story)


@pytest.mark.parametrize(
    ("loadable", "status"),
    [
        pytest.param({"m"}, 200, id="one that is loaded on demand: asked again"),
        pytest.param(set(), 404, id="any other: the engine's own answer"),
    ],
)
def test_a_model_that_the_engine_has_not_any_more(loadable: set[str], status: int) -> None:
    def story() -> None:
        world = World()
        world.controller.retries = 1
        world.controller.loads.names = loadable
        client = world.ask(stream=False)
        world.calls[0].answer({"error": {"message": "The model `m` does not exist."}}, status=404)
        if loadable:
            assert world.told(Failed) == [Failed(client.id, "a", "unloaded", True)]
            world.calls[1].answer({"choices": []}, status=200)
        world.flush()
        assert client.status == status

    in_loop(story)


@pytest.mark.parametrize(
    "said",
    [
        pytest.param({"detail": "Not Found"}, id="an endpoint that it has not"),
        pytest.param({"error": {"message": "Response 'r' not found."}}, id="an earlier response"),
        pytest.param(b"", id="nothing at all"),
    ],
)
def test_a_404_that_is_not_of_the_model_is_an_answer(said: object) -> None:
    def story() -> None:
        world = World()
        world.controller.loads.names = {"m"}
        client = world.ask(stream=False)
        world.engine.answer(said, status=404)
        world.flush()
        assert client.status == 404
        assert world.told(Failed) == []

    in_loop(story)


GONE = Refusal(404, "it is another's", code="model_not_found")


def test_who_is_turned_away_while_it_runs_gets_its_answer_but_no_other_attempt() -> None:
    def story() -> None:
        world = World()
        world.controller.retries = 1
        first, second = world.ask(stream=False), world.ask(stream=False, seed=2)
        for client in (first, second):
            assert client.exchange is not None
            client.exchange.turn_away(GONE)
        world.flush()
        assert (first.ended, second.ended) == (False, False)
        world.calls[0].answer({"choices": []})
        world.calls[1].fail()
        world.flush()
        assert (first.status, second.status) == (200, 404)
        assert len(world.calls) == 2
        assert world.told(Failed) == []
        assert world.told(Cancelled)[-1].request_id == second.id
        assert not world.driver.exchanges

    in_loop(story)


def test_who_waits_again_after_an_attempt_is_turned_away() -> None:
    def story() -> None:
        world = World()
        world.controller.loads.names = {"m"}
        world.controller.holds_again = True
        client = world.ask(stream=False)
        world.engine.answer({"error": {"message": "The model `m` does not exist."}}, status=404)
        world.flush()
        assert client.exchange is not None
        assert not client.ended
        client.exchange.turn_away(GONE)
        world.flush()
        assert client.status == 404
        assert world.record(client).attempts == 1
        assert not world.driver.exchanges

    in_loop(story)


def test_a_stream_that_breaks_ends_for_all_with_the_error_event() -> None:
    def story() -> None:
        world = World()
        clients = [world.ask() for _ in range(2)]
        world.engine.head().send(token()).fail()
        world.flush()
        assert all(b'"code":"upstream_failed"' in client.got for client in clients)
        assert all(client.ended for client in clients)
        assert world.told(Failed) == [Failed(clients[0].id, "a", "broken", False)]
        assert world.record(clients[1]).merged_into == clients[0].id

    in_loop(story)


def test_the_engines_error_goes_to_all() -> None:
    def story() -> None:
        world = World()
        clients = [world.ask() for _ in range(2)]
        world.engine.answer({"error": {"message": "no"}}, status=400)
        world.flush()
        assert {client.status for client in clients} == {400}
        assert [each.request_id for each in world.told(Cancelled)] == [
            client.id for client in clients
        ]

    in_loop(story)


def test_an_error_of_ours_ends_all_connections() -> None:
    def story() -> None:
        world = World()
        clients = [world.ask() for _ in range(2)]
        exchange = clients[0].exchange
        assert exchange is not None
        assert exchange.generation is not None
        exchange.generation.cut()
        assert all(client.aborted for client in clients)

    in_loop(story)


def test_a_join_to_what_is_not_there_is_answered() -> None:
    def story() -> None:
        world = World()
        world.ask()
        world.driver.exchanges.clear()
        lost = world.ask()
        assert lost.status == 503
        assert [each.request_id for each in world.told(Cancelled)] == [lost.id]

    in_loop(story)


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(lambda world: world.engine.send(LAST), id="the answer is complete"),
        pytest.param(lambda world: world.engine.fail(), id="it breaks"),
    ],
)
def test_nothing_is_left_of_a_generation(end: Callable[[World], object]) -> None:
    def story() -> None:
        world = World()
        leader, _ = world.ask(), world.ask()
        world.engine.head().send(token())
        leader.leave()
        end(world)
        world.flush()
        driver = world.driver
        assert (driver.exchanges, driver.orphans, driver.full, driver.kept_bytes) == ({}, {}, {}, 0)

    in_loop(story)
