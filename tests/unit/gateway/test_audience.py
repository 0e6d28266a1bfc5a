"""The clients of one generation: slow ones, late ones, and answers too long to keep."""

from __future__ import annotations

import msgspec
import pytest

from mileage.core.events import Arrived, Cancelled
from mileage.gateway import audience
from tests.support.shared_generation import DONE, World, in_loop, token

USAGE = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
LAST = b"data: %b\n\n" % msgspec.json.encode({"choices": [], "usage": USAGE}) + DONE


def test_a_slow_client_holds_up_nobody_and_misses_nothing() -> None:
    def story() -> None:
        world = World()
        slow, fast = world.ask(), world.ask()
        slow.slow = True
        world.engine.head().send(token("a"), token("b"), token("c"))
        assert not world.engine.paused
        assert fast.got == token("a") + token("b") + token("c")
        assert slow.got == token("a")
        slow.catch_up()
        assert slow.got == fast.got
        slow.slow = True
        world.engine.send(token("d"), token("e"), LAST)
        world.flush()
        assert slow.got == fast.got
        assert slow.ended

    in_loop(story)


def test_the_engine_waits_while_all_are_slow() -> None:
    def story() -> None:
        world = World()
        one, other = world.ask(), world.ask()
        one.slow = other.slow = True
        world.engine.head().send(token())
        waits = [world.engine.paused]
        other.catch_up()
        waits.append(world.engine.paused)
        world.engine.send(token())
        assert other.got == token() * 2
        other.leave()
        waits.append(world.engine.paused)
        one.catch_up()
        waits.append(world.engine.paused)
        assert waits == [True, False, True, False]
        assert one.got == other.got

    in_loop(story)


def test_a_client_that_falls_too_far_behind_is_cut_off_and_told_why() -> None:
    def story() -> None:
        world = World(buffer_bytes_max=1024)
        leader, fast = world.ask(), world.ask()
        leader.slow = True
        big = token("x" * 600)
        world.engine.head().send(big, big)
        ended = [leader.ended]
        world.engine.send(big)
        world.flush()
        assert [*ended, leader.ended] == [False, True]
        assert b"reads more slowly" in leader.got
        end = world.record(leader)
        assert (end.outcome, end.reason, end.merged_into) == ("cancelled", "slow_client", fast.id)
        assert [each.request_id for each in world.told(Cancelled)] == [leader.id]
        world.engine.send(LAST)
        world.flush()
        assert fast.got == big * 3 + DONE

    in_loop(story)


def test_clients_that_are_all_slow_are_not_cut_off() -> None:
    def story() -> None:
        world = World(buffer_bytes_max=1024)
        clients = [world.ask(), world.ask()]
        for client in clients:
            client.slow = True
        world.engine.head().send(*(token("x" * 600) for _ in range(5)))
        assert world.engine.paused
        assert not any(client.ended for client in clients)

    in_loop(story)


# --- answers too long to keep ---------------------------------------------------------------------


def test_a_long_answer_takes_no_more_joiners_and_the_next_one_does() -> None:
    def story() -> None:
        world = World(buffer_bytes_max=1024)
        early = world.ask()
        world.engine.head().send(token("x" * 2000))
        second, third = world.ask(), world.ask()
        assert len(world.calls) == 2
        arrived = world.told(Arrived)
        assert arrived[1].request.merge_key == arrived[2].request.merge_key
        assert arrived[0].request.merge_key != arrived[1].request.merge_key
        world.calls[1].head().send(token("x" * 2000))
        fourth = world.ask()
        assert len(world.calls) == 3
        for call in world.calls[:2]:
            call.send(LAST)
        world.calls[2].head().send(LAST)
        world.flush()
        assert early.got == second.got == third.got == token("x" * 2000) + DONE
        assert fourth.got == DONE
        assert not world.driver.full
        world.ask()
        assert world.told(Arrived)[-1].request.merge_key == arrived[0].request.merge_key

    in_loop(story)


def test_nobody_joins_a_long_answer_because_another_tenants_has_ended() -> None:
    def story() -> None:
        world = World(buffer_bytes_max=1024)
        first = world.ask()
        world.tenant = "rival"
        world.ask()
        for call in world.calls:
            call.head().send(token("x" * 2000))
        world.calls[1].send(LAST)
        world.flush()
        world.tenant = "t"
        late = world.ask()
        assert len(world.calls) == 3
        for call in (world.calls[2].head().send(token("x" * 2000)), world.calls[0]):
            call.send(LAST)
        world.flush()
        assert late.got == first.got
        assert not world.driver.full

    in_loop(story)


def test_no_more_is_kept_than_all_answers_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    def story() -> None:
        monkeypatch.setattr(audience, "_KEPT_BYTES_MAX", 1000)
        world = World()
        world.ask(seed=1)
        world.calls[0].head().send(token("x" * 600))
        kept = world.driver.kept_bytes
        assert 600 < kept <= 1000
        world.ask(seed=2)
        world.calls[1].head().send(token("x" * 600))
        assert world.driver.kept_bytes == kept
        world.ask(seed=2)
        assert len(world.calls) == 3
        world.ask(seed=1)
        assert len(world.calls) == 3
        for call in world.calls:
            call.send(LAST) if call is not world.calls[2] else call.fail()
        assert world.driver.kept_bytes == 0

    in_loop(story)


def test_a_large_whole_answer_is_passed_on_to_all() -> None:
    def story() -> None:
        world = World()
        clients = [world.ask(stream=False) for _ in range(2)]
        large = msgspec.json.encode({"pad": "x" * (3 << 19), "usage": USAGE})
        world.engine.head(200, [(b"content-length", b"%d" % len(large))])
        world.engine.send(large[: 1 << 20], large[1 << 20 : -5])
        world.ask(stream=False)
        assert len(world.calls) == 2
        world.calls[0].end(large[-5:])
        world.flush()
        assert {client.got for client in clients} == {large}
        assert {world.record(client).prompt_tokens for client in clients} == {7}

    in_loop(story)
