"""A model of a real engine behind a real gateway, whose clients' requests are counted."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import openai

from tests.support.gateway import Gateway, run_mileage, wait_until
from tests.support.local_http import LOCAL

__all__ = ["Served"]


class Served:
    """A model behind a gateway, and what its clients sent and received.

    `context_tokens` is the model's context; `timeout_s` is enough for any one answer; `engine_log`
    gives what the engine wrote.
    """

    def __init__(
        self,
        gateway: Gateway,
        model: str,
        *,
        context_tokens: int,
        timeout_s: float,
        engine_log: Callable[[], str] = lambda: "",
    ) -> None:
        self.gateway, self.model = gateway, model
        self.context_tokens, self.timeout_s = context_tokens, timeout_s
        self.engine_log = engine_log
        self.answered: set[int] = set()
        """Ids of requests that got an answer."""
        self.unanswered = 0
        """Requests whose client did not wait for an answer."""

    def client(self, **options: Any) -> openai.OpenAI:
        """The official client, whose answers are noted."""
        http = httpx.Client(event_hooks={"response": [self._note]}, **LOCAL)
        return self.gateway.client(http_client=http, timeout=self.timeout_s, **options)

    def async_client(self) -> openai.AsyncOpenAI:
        """The same, for asyncio."""

        async def note(response: httpx.Response) -> None:
            self._note(response)

        http = httpx.AsyncClient(event_hooks={"response": [note]}, **LOCAL)
        options = {**self.gateway.client_options, "timeout": self.timeout_s}
        return openai.AsyncOpenAI(http_client=http, **options)

    def row(self, request_id: str | None) -> dict[str, Any]:
        """The ledger's row of a request, as `mileage requests` prints it."""
        assert request_id is not None
        (row,) = [row for row in self.rows() if f"req-{row['id']:x}" == request_id]
        return row

    def rows(self) -> list[dict[str, Any]]:
        """All rows of the ledger, as `mileage requests` prints them, once all are there."""
        count = len(self.answered) + self.unanswered
        self.gateway.requests(count)
        ledger = self.gateway.ledger
        arguments = ("requests", "--ledger", ledger, "--last", "100000", "--json", "--verify")
        printed = run_mileage(*arguments, state=self.gateway.state)
        assert printed.returncode == 0, printed.stderr + printed.stdout
        document = json.loads(printed.stdout)
        assert document["problems"] == []
        rows: list[dict[str, Any]] = document["requests"]
        assert len(rows) == count
        return rows

    def check_ledger(self) -> None:
        """Every request so far is in the ledger, once, and ended as it should."""
        rows = self.rows()
        ids = [row["id"] for row in rows]
        assert len(set(ids)) == len(ids)
        assert self.answered <= set(ids)
        silent = [row for row in rows if row["id"] not in self.answered]
        assert [row["outcome"] for row in silent] == ["cancelled"] * self.unanswered
        for row in rows:
            assert row["outcome"] in ("ok", "rejected", "cancelled"), row
            if row["outcome"] == "ok" and row["status"] == 200:
                assert row["prompt_tokens"] > 0
                assert row["output_tokens"] or row["endpoint"] == "embeddings"

    def wait_running(self, count: int, timeout_s: float) -> None:
        """Wait until the engine says that it runs so many generations."""

        def running() -> bool:
            replica = self.gateway.replica()
            return replica["running"] == count and not replica["waiting"]

        wait_until(running, f"the engine runs {count}", timeout_s)

    def _note(self, response: httpx.Response) -> None:
        request_id = response.headers.get("x-request-id")
        if request_id is not None:
            self.answered.add(int(request_id.removeprefix("req-"), 16))
