"""The step engine: a fast engine whose step time is known, behind vLLM's API and metric names.

`python -m benchmarks.support.step_engine --port N [--model small] [...]`. It computes nothing: its
scheduler (`step_core`) decides what a step holds, the step model says how long that takes, and the
tokens come out when that time is over. GET /stats tells what it did and how late its steps ran: a
run in which they ran late says nothing. A client that leaves aborts its request.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import gc
import json
import time
from functools import partial
from random import Random
from typing import cast

import httptools
import msgspec
import uvloop

from benchmarks.support.machine import raise_file_limit
from benchmarks.support.payloads import models_answer
from benchmarks.support.step_answers import (
    CHAT_MODEL,
    EMBEDDING_MODEL,
    Asked,
    Stream,
    asked_of,
    embedding,
    metrics,
    sm_active,
)
from benchmarks.support.step_core import CoreConfig, Sequence, StepCore
from benchmarks.support.step_model import MODELS
from mileage.loadgen.timer_fd import TimerFd

__all__ = ["Lags", "main"]


class Lags:
    """How late steps ended, in seconds, and how often the clock had to be set anew."""

    def __init__(self) -> None:
        self.steps = self.stalls = 0
        self.sum_s = self.max_s = self.steps_s = self.stalled_s = 0.0

    def note(self, lag_s: float, step_s: float) -> None:
        """A step of `step_s` ended so late."""
        self.steps += 1
        self.steps_s += step_s
        self.sum_s += lag_s
        self.max_s = max(self.max_s, lag_s)

    def stall(self, lag_s: float) -> None:
        """A step was so late that the time was given up: what follows is later than it should be.

        Short delays are made up for by the next step, whose time counts from when the last one
        should have ended.
        """
        self.stalls += 1
        self.stalled_s += lag_s


class _Engine:
    """The clock of the steps, and who waits for which sequence."""

    def __init__(self, config: CoreConfig, seed: int, options: argparse.Namespace) -> None:
        self.core = StepCore(config, Random(seed))
        self.options = options
        self.stream = Stream(CHAT_MODEL)
        self.lags = Lags()
        self.embedding_calls = self.embedding_items = 0
        self._embedding_free_s = 0.0
        self._clients: dict[Sequence, _Connection] = {}
        self._timer = TimerFd()
        self._sampled = (time.monotonic(), 0.0)
        self._stepping = False
        self._due_s = self._step_s = 0.0
        asyncio.get_running_loop().add_reader(self._timer.fileno(), self._rang)

    def add(self, sequence: Sequence, client: _Connection) -> None:
        """Take a request on; raises ValueError."""
        self.core.add(sequence)
        self._clients[sequence] = client
        if not self._stepping:
            self._begin(time.monotonic())

    def abort(self, sequence: Sequence) -> None:
        """Its client left."""
        self._clients.pop(sequence, None)
        self.core.abort(sequence)

    def embed(self, items: int) -> float:
        """Seconds until an embedding call is done: calls are served one by one."""
        self.embedding_calls += 1
        self.embedding_items += items
        now_s = time.monotonic()
        cost_s = self.options.embedding_call_s + items * self.options.embedding_item_s
        self._embedding_free_s = max(now_s, self._embedding_free_s) + cost_s
        return self._embedding_free_s - now_s

    def compute_busy_ratio(self) -> float:
        """How busy the compute plane was since this was last asked."""
        now_s, compute_s = time.monotonic(), self.core.counters.compute_s
        then_s, before_s = self._sampled
        self._sampled = (now_s, compute_s)
        return min(1.0, (compute_s - before_s) / max(now_s - then_s, 1e-3))

    def stats(self) -> dict[str, object]:
        """What it did since its start, and how late since they were last reset."""
        core = self.core
        return {
            **dataclasses.asdict(core.counters),
            "running": len(core.running),
            "waiting": len(core.waiting),
            "work": core.work,
            "embedding_calls": self.embedding_calls,
            "embedding_items": self.embedding_items,
            "lags": vars(self.lags),
        }

    def _begin(self, start_s: float) -> None:
        """Begin a step that counts from `start_s`, or wait."""
        step = self.core.begin(time.monotonic())
        self._stepping = step is not None
        if step is not None:
            self._step_s = step.duration_s
            self._due_s = start_s + step.duration_s
            self._timer.arm_ns(int(self._due_s * 1e9))
        elif (due_s := self.core.due_s()) is not None:
            self._timer.arm_ns(int(due_s * 1e9) + 1)

    def _rang(self) -> None:
        self._timer.rest()
        now_s = time.monotonic()
        if not self._stepping:  # a batch need not wait for company any longer
            self._begin(now_s)
            return
        lag_s = now_s - self._due_s
        if lag_s < 0:
            return  # an older time that was set
        self.lags.note(lag_s, self._step_s)
        start_s = self._due_s
        if lag_s > self._step_s:
            self.lags.stall(lag_s)
            start_s = now_s
        produced = self.core.end()
        self._begin(start_s)
        clients = self._clients
        for sequence in produced:
            client = clients.get(sequence)
            if client is None:
                continue
            client.token(sequence)
            if sequence.done:
                del clients[sequence]


class _Connection(asyncio.Protocol):
    """One connection of a client; requests on it come one after another."""

    def __init__(self, engine: _Engine) -> None:
        self._engine = engine
        self._parser = httptools.HttpRequestParser(self)
        self._sequence: Sequence | None = None
        self._streams = self._usage = self._begun = False
        self._url = b""
        self._body: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._sequence is not None:
            self._engine.abort(self._sequence)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.close()

    def on_message_begin(self) -> None:
        self._url, self._body = b"", []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        if self._parser.get_method() != b"POST":
            self._answer(*self._page())
            return
        try:
            asked = asked_of(b"".join(self._body))
            if self._url == b"/v1/embeddings":
                self._embed(asked)
            elif self._url in (b"/v1/chat/completions", b"/v1/completions"):
                self._generate(asked)
            else:
                self._answer(404, b"{}")
        except (ValueError, msgspec.DecodeError) as error:
            message = {"error": {"message": str(error), "type": "invalid_request_error"}}
            self._answer(400, json.dumps(message).encode())

    def token(self, sequence: Sequence) -> None:
        """Its sequence has one token more."""
        stream = self._engine.stream
        if not sequence.done:
            if self._streams:
                self._transport.write(stream.token if self._begun else stream.first)
                self._begun = True
            return
        self._sequence = None
        counts = sequence.prompt_tokens, sequence.output_tokens
        if not self._streams:
            self._answer(200, stream.whole(*counts))
        elif self._begun:
            self._transport.write(stream.last(*counts, usage=self._usage))
        else:  # an answer of one token, or of a batch
            self._transport.write(stream.all(*counts, usage=self._usage))

    def _page(self) -> tuple[int, bytes]:
        engine = self._engine
        if self._url == b"/metrics":
            return 200, metrics(engine.core)
        if self._url == b"/dcgm/metrics":
            return 200, sm_active(engine.compute_busy_ratio())
        if self._url == b"/stats":
            return 200, json.dumps(engine.stats()).encode()
        if self._url == b"/stats?reset":
            engine.lags = Lags()
            return 200, b"{}"
        if self._url == b"/v1/models":
            return 200, models_answer(CHAT_MODEL, EMBEDDING_MODEL)
        if self._url == b"/version":
            return 200, b'{"version":"0.32.0"}'
        return (200, b"{}") if self._url == b"/health" else (404, b"{}")

    def _generate(self, asked: Asked) -> None:
        if self._sequence is not None:
            raise ValueError("one request at a time on a connection")
        engine = self._engine
        sequence = Sequence(
            asked.prompt_tokens(engine.options.bytes_per_token),
            asked.output_tokens,
            time.monotonic(),
            asked.orders().get("tag", ""),
        )
        self._streams, self._usage = asked.stream, asked.usage_asked
        self._sequence, self._begun = sequence, False
        try:
            engine.add(sequence, self)
        except ValueError:
            self._sequence = None
            raise

    def _embed(self, asked: Asked) -> None:
        texts = asked.texts
        if not texts:
            raise ValueError("input: a text, or a list of them, was expected")
        delay_s = self._engine.embed(len(texts))
        loop = asyncio.get_running_loop()
        loop.call_later(delay_s, partial(self._answer, 200, embedding(texts)))

    def _answer(self, status: int, body: bytes) -> None:
        if self._transport.is_closing():
            return
        kind = (
            b"text/plain; version=0.0.4" if self._url.endswith(b"/metrics") else b"application/json"
        )
        self._transport.write(
            b"HTTP/1.1 %d %b\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b"
            % (status, b"OK" if status == 200 else b"Error", kind, len(body), body)
        )


async def _serve(options: argparse.Namespace) -> None:
    config = CoreConfig(
        model=MODELS[options.model],
        running_max=options.running_max,
        step_tokens_max=options.step_tokens_max,
        kv_blocks=options.kv_blocks,
        noise_ratio=options.noise_ratio,
        batch_size=options.batch_size,
        batch_delay_s=options.batch_delay_s,
    )
    engine = _Engine(config, options.seed, options)
    server = await asyncio.get_running_loop().create_server(
        lambda: _Connection(engine), "127.0.0.1", options.port, backlog=8192
    )
    gc.freeze()
    gc.disable()  # nothing here is in cycles for long, and a collection would make a step late
    await server.serve_forever()


def main() -> None:
    """Serve until the process is ended."""
    defaults = {field.name: field.default for field in dataclasses.fields(CoreConfig)}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", choices=sorted(MODELS), default="small")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bytes-per-token", type=float, default=4.0)
    parser.add_argument("--embedding-call-s", type=float, default=0.004)
    parser.add_argument("--embedding-item-s", type=float, default=0.000_1)
    for name in ("running_max", "step_tokens_max", "kv_blocks", "batch_size"):
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=defaults[name])
    for name in ("noise_ratio", "batch_delay_s"):
        parser.add_argument(f"--{name.replace('_', '-')}", type=float, default=defaults[name])
    raise_file_limit(32_768)
    uvloop.run(_serve(parser.parse_args()))


if __name__ == "__main__":
    main()
