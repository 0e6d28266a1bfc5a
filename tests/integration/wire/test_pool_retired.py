"""A pool that is retired: what runs finishes, and nothing of it is left."""

from __future__ import annotations

import asyncio

from mileage.wire.pool import UpstreamPool
from tests.support.pooled_engine import (
    ANSWER,
    REQUEST,
    Engine,
    Serve,
    Sink,
    ask,
    engine,
    keeps_alive,
    silent,
)


async def until_ended(pool: UpstreamPool) -> None:
    while not pool.ended:  # noqa: ASYNC110 -- what the other end does
        await asyncio.sleep(0.005)


def test_idle_connections_are_closed_at_once_and_the_others_after_their_answer() -> None:
    go_on = asyncio.Event()

    def when_told(state: Engine) -> Serve:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while True:
                await state.head(reader)
                await go_on.wait()
                writer.write(ANSWER)

        return serve

    async def main() -> None:
        async with engine(when_told) as (state, pool):
            go_on.set()
            await asyncio.gather(ask(pool), ask(pool))
            go_on.clear()
            sink = Sink()
            pool.send(REQUEST, sink, 0.0)
            assert not pool.ended
            pool.retire()
            assert not pool.ended
            go_on.set()
            await sink.ended.wait()
            assert (sink.status, sink.body) == (200, b"ok")
            await until_ended(pool)
            assert state.connections == 2

    asyncio.run(asyncio.wait_for(main(), 60))


def test_one_that_comes_late_is_served_and_watched() -> None:
    # It was dispatched before, and its record was written meanwhile.
    async def main() -> None:
        async with engine(keeps_alive) as (_, pool):
            pool.retire()
            assert pool.ended
            await asyncio.sleep(0.7)  # its sweep has found that nothing is left, and has ended
            sink = await ask(pool)
            assert sink.body == b"ok"
            await until_ended(pool)

    asyncio.run(asyncio.wait_for(main(), 60))


def test_the_time_of_one_that_comes_late_runs_out() -> None:
    async def main() -> None:
        async with engine(silent, response_timeout_s=0.2) as (_, pool):
            pool.retire()
            await asyncio.sleep(0.7)
            sink = await ask(pool)
            assert sink.broken is not None
            assert sink.broken[0] == "timeout"

    asyncio.run(asyncio.wait_for(main(), 60))
