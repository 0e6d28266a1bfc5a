"""ExperimentSite: a gateway before an old engine (arm a) and a new one (arm b)."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from tests.support.engine import ScriptedEngine
from tests.support.gateway import Gateway, run_mileage, wait_until
from tests.support.local_http import LOCAL

__all__ = ["HALVES", "ExperimentSite", "experiment_site"]

HALVES = '[experiment]\nname = "halves"\nreplicas = ["new"]\nblock_s = 1\nblock_requests_min = 5\n'


class ExperimentSite:
    """A gateway before an old engine (arm a) and a new one (arm b)."""

    def __init__(
        self, directory: Path, old: ScriptedEngine, new: ScriptedEngine, *arguments: str
    ) -> None:
        self.old, self.new = old, new
        self.path = directory / "mileage.toml"
        self._engines = "".join(
            f'[[engines]]\nkind = "vllm"\nname = "{name}"\nurl = "{engine.url}"\n'
            "health_interval_s = 0.2\nscrape_interval_s = 0.2\n"
            for name, engine in (("old", old), ("new", new))
        )
        self.gateway = Gateway(directory, "--no-watch", *arguments, config=self.text(""))
        self.sent = self.failed = 0

    def text(self, sections: str) -> str:
        return f"[breaker]\nfailures_max = 1000\n{sections}\n{self._engines}"

    def reload(self, sections: str) -> httpx.Response:
        self.path.write_text(self.text(sections))
        return self.post("/api/v1/config/reload")

    def post(self, path: str, document: Any = None) -> httpx.Response:
        token = Path(self.gateway.listening.admin_token_file or "").read_text().strip()
        url = f"{self.gateway.listening.admin_url}{path}"
        headers = {"authorization": f"Bearer {token}"}
        content = b"" if document is None else json.dumps(document).encode()
        return httpx.post(url, headers=headers, content=content, **LOCAL)

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.gateway.admin("/api/v1/experiment")
        return found

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        listening = self.gateway.listening
        return run_mileage(
            "experiment",
            *words,
            *("--admin", listening.admin_url or "", "--token-file", self.token_file),
            state=self.gateway.state,
        )

    @property
    def token_file(self) -> str:
        return self.gateway.listening.admin_token_file or ""

    def restart_killed(self) -> None:
        """Kill the gateway, and start it anew."""
        self.gateway.kill_all()
        self.gateway.start()
        self.gateway.wait_up()

    def send(self, count: int) -> list[str]:
        """So many requests at once; what they were answered."""

        def one(number: int) -> str:
            # Prompts that begin alike would all prefer one replica.
            messages = [{"role": "user", "content": f"{number} times hello"}]
            body = {"model": "toy", "stream": True, "messages": messages}
            answer = client.post("/chat/completions", json=body)
            return answer.text if answer.status_code == 200 else f"status {answer.status_code}"

        # A connection each: the kernel spreads connections over the workers.
        limits = httpx.Limits(max_keepalive_connections=0)
        with (
            httpx.Client(base_url=self.gateway.url, limits=limits, **LOCAL) as client,
            ThreadPoolExecutor(8) as pool,
        ):
            answers = list(pool.map(one, range(count)))
        self.sent += count
        return answers

    def wait_counted(self) -> dict[str, Any]:
        """The status once all that was sent is in it."""

        def counted() -> dict[str, Any] | None:
            status = self.status()
            return (
                status if status["a"]["requests"] + status["b"]["requests"] == self.sent else None
            )

        found: dict[str, Any] = wait_until(counted, "every request is in one arm")
        return found


@contextlib.contextmanager
def experiment_site(directory: Path, *arguments: str) -> Iterator[ExperimentSite]:
    """A site whose engines are both up."""
    with ScriptedEngine() as old, ScriptedEngine() as new:
        made = ExperimentSite(directory, old, new, *arguments)
        with made.gateway:
            made.gateway.wait_up()
            yield made
