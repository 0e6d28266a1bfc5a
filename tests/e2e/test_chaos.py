"""Engines that fail and clients that leave, all at once: to each its own answer or an error."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Literal, TypeAlias

import httpx
import openai
import pytest

from tests.support.duo import Duo
from tests.support.engine import Behaviour, ScriptedEngine
from tests.support.engine_answers import text_of
from tests.support.engine_script import Fault
from tests.support.gateway import wait_until
from tests.support.local_http import LOCAL

CLIENTS = 12
REQUESTS = 40
SEED = 20_261_129
TOKENS_MAX = 12
FAULTS: tuple[Fault, ...] = ("close", "reset", "malformed", "half_event", "kept_alive")
STATUSES = (400, 429, 500, 502, 503)

End: TypeAlias = Literal["complete", "error", "left"]


def any_behaviour(random: Random) -> Behaviour:
    """Most answer in order; the others fail in any way, anywhere."""
    tokens = random.randint(1, TOKENS_MAX)
    usual: dict[str, Any] = {
        "tokens": tokens,
        "echo": True,
        "token_s": random.choice((0, 0, 0.002)),
        "end_s": random.choice((0, 0, 0.05)),
        "keep_alive": random.random() < 0.9,
        "framing": random.choice(("length", "length", "length", "close")),
    }
    chance = random.random()
    if chance < 0.7:
        return Behaviour(**usual)
    if chance < 0.8:
        return Behaviour(**{**usual, "status": random.choice(STATUSES)})
    at = random.choice((None, *range(tokens)))
    return Behaviour(**{**usual, "fault": random.choice(FAULTS), "fault_at": at})


class Client(threading.Thread):
    """Asks one question after the other, each with a text of its own, and checks what it gets."""

    def __init__(self, duo: Duo, number: int) -> None:
        super().__init__(daemon=True)
        self._duo, self._number = duo, number
        self._random = Random(SEED + number)
        self.ends: list[tuple[str | None, End]] = []
        """Request id, where the answer's head came, and how it ended."""
        self.mistakes: list[str] = []

    def run(self) -> None:
        with httpx.Client(**LOCAL) as http, self._duo.gateway.client(http_client=http) as client:
            for question in range(REQUESTS):
                self._ask(client, f"<{self._number}.{question}>")

    def _ask(self, client: openai.OpenAI, mark: str) -> None:
        stream = self._random.random() < 0.7
        leave_after = self._random.randint(0, 5) if self._random.random() < 0.15 else None
        hurry = not stream and self._random.random() < 0.15
        text, request_id = "", None
        try:
            raw: Any = client.chat.completions.with_raw_response.create(
                model="toy",
                messages=[{"role": "user", "content": mark}],
                stream=stream,
                timeout=0.01 if hurry else 60,
            )
            request_id = raw.headers["x-request-id"]
            if not stream:
                text = raw.parse().choices[0].message.content
            else:
                with raw.parse() as chunks:
                    for count, chunk in enumerate(chunks):
                        text += "".join(c.delta.content or "" for c in chunk.choices)
                        if count == leave_after:
                            self.ends.append((request_id, "left"))
                            return
        except openai.APITimeoutError:
            self.ends.append((request_id, "left"))
            if not hurry:
                self.mistakes.append(f"{mark} had no answer in time")
        except openai.APIError as error:
            response = getattr(error, "response", None)
            if response is not None:
                request_id = response.headers["x-request-id"]
            elif request_id is None:
                self.mistakes.append(f"{mark} had no answer at all: {error!r}")
            self.ends.append((request_id, "error"))
        else:
            self.ends.append((request_id, "complete"))
            if text not in {text_of(n, mark) for n in range(1, TOKENS_MAX + 1)}:
                self.mistakes.append(f"{mark} got {text!r}")


@pytest.fixture
def chaos(tmp_path: Path) -> Iterator[Duo]:
    with ScriptedEngine(models=("toy", "a")) as a, ScriptedEngine(models=("toy", "b")) as b:
        # With breakers, most of the requests would be refused.
        duo = Duo(tmp_path, a, b, breaker_failures=10_000)
        random = Random(SEED)
        with duo.gateway:
            duo.reset()
            duo.first(*(any_behaviour(random) for _ in range(3 * CLIENTS * REQUESTS)))
            yield duo


def test_every_client_gets_its_own_answer_or_an_error(chaos: Duo) -> None:
    clients = [Client(chaos, number) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join(120)
        assert not client.is_alive(), "a request has no end"
    assert [mistake for client in clients for mistake in client.mistakes] == []

    ends = [end for client in clients for end in client.ends]
    assert len(ends) == CLIENTS * REQUESTS
    seen = Counter(end for _, end in ends)
    assert min(seen[end] for end in ("complete", "error", "left")) > CLIENTS, seen

    wait_until(lambda: chaos.sum("running") == 0, "the engines have nothing left to do")
    wait_until(lambda: in_flight(chaos) == 0, "the gateway has nothing left to do")
    rows = {f"req-{row.id:x}": row.outcome for row in chaos.rows(len(ends))}
    expected: dict[End, set[str]] = {
        "complete": {"ok"},
        # An engine's own 400 or 429 is its whole answer.
        "error": {"failed", "rejected", "ok"},
        # It may have left after the last event, or while the answer went out.
        "left": {"cancelled", "ok", "failed"},
    }
    for request_id, end in ends:
        if request_id is not None:
            assert rows[request_id] in expected[end], (request_id, end)


def in_flight(duo: Duo) -> int:
    return sum(duo.gateway.replica(name)["in_flight"] for name in ("a", "b"))
