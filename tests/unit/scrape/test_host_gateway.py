"""A gateway's pauses by its admin plane: kept once each; what it does not answer is told."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from mileage.scrape.host_gateway import GatewayPauses
from mileage.wire.fetch import FetchError, FetchResponse

FIRST = '{"pid": 7, "kind": "gc", "at_utc_s": 1000.5, "length_s": 0.2, "generation": 2}'
SECOND = '{"pid": 7, "kind": "event_loop", "at_utc_s": 1001.5, "length_s": 0.1}'


class Plane:
    """Answers in turn, the last one again and again; keeps what it was asked."""

    def __init__(self, *answers: FetchResponse | FetchError) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[str, Sequence[tuple[str, str]]]] = []

    async def __call__(
        self,
        url: str,
        *,
        headers: Sequence[tuple[str, str]] = (),
        timeout_s: float,
        body_bytes_max: int = 0,
    ) -> FetchResponse:
        self.asked.append((url, headers))
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, FetchError):
            raise answer
        return answer


def told(*rows: str, status: int = 200) -> FetchResponse:
    return FetchResponse(status, (), f'{{"pauses": [{", ".join(rows)}]}}'.encode())


def test_each_pause_is_kept_once_with_its_time() -> None:
    plane = Plane(told(FIRST), told(FIRST, SECOND))
    pauses = GatewayPauses("http://127.0.0.1:8081/", "secret", ask=plane)

    async def run() -> None:
        await pauses.start()
        first, second = await pauses.stop()
        assert (first.cause, first.role, first.pid) == ("gc", "gateway", 7)
        assert [first.start_s, first.end_s, first.busy_s] == pytest.approx([1000.5, 1000.7, 0.2])
        assert (first.detail, second.detail) == ("generation 2", "")
        assert second.cause == "event_loop"

    asyncio.run(run())
    assert pauses.missing is None
    assert plane.asked[0] == (
        "http://127.0.0.1:8081/api/v1/pauses",
        (("authorization", "Bearer secret"),),
    )


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        pytest.param(told(status=401), "the admin token is not right", id="a wrong token"),
        pytest.param(told(status=404), "answered with 404", id="an older gateway"),
        pytest.param(FetchResponse(200, (), b"<html>"), "not a list of pauses", id="another"),
        pytest.param(
            FetchError("http://127.0.0.1:8081", "connect", "refused"), "refused", id="nobody"
        ),
    ],
)
def test_what_cannot_be_had_is_told(answer: FetchResponse | FetchError, why: str) -> None:
    pauses = GatewayPauses("http://127.0.0.1:8081", None, ask=Plane(answer))

    async def run() -> None:
        await pauses.start()
        assert await pauses.stop() == []

    asyncio.run(run())
    assert pauses.missing is not None
    assert why in pauses.missing


def test_an_answer_that_comes_again_is_no_fault_any_more() -> None:
    pauses = GatewayPauses("http://127.0.0.1:8081", None, ask=Plane(told(status=500), told(FIRST)))

    async def run() -> None:
        await pauses.start()
        assert pauses.missing is not None
        assert len(await pauses.stop()) == 1

    asyncio.run(run())
    assert pauses.missing is None
