"""Mileage under test: `mileage serve` with key check, metering, ledger, governor, journal on."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from prometheus_client.parser import text_string_to_metric_families

from benchmarks.support.payloads import CHAT_MODEL, STREAM_MODEL
from benchmarks.support.processes import LOCAL, Service, free_port
from benchmarks.support.stacks import Stack, Upstreams, first_line

__all__ = ["LedgerTotals", "MileageStack", "mileage_config"]

ENGINE_CONNECTIONS_MAX = 10_000
TENANTS = 8
"""Tenants with a key each; the load comes from the first."""


def mileage_config(
    upstreams: Upstreams,
    directory: Path,
    *,
    port: int,
    admin_port: int,
    keys: Sequence[str],
    server: Mapping[str, float] = MappingProxyType({}),
) -> str:
    """The TOML of `mileage serve`; `server` adds to its section [server]."""
    lines = [
        "[server]",
        'host = "127.0.0.1"',
        f"port = {port}",
        *(f"{k} = {v}" for k, v in server.items()),
    ]
    for name, upstream, model in (
        ("whole", upstreams.chat_port, CHAT_MODEL),
        ("events", upstreams.stream_port, STREAM_MODEL),
    ):
        lines += [
            "[[engines]]",
            'kind = "openai"',
            f'name = "{name}"',
            f'url = "http://127.0.0.1:{upstream}"',
            f'models = ["{model}"]',
            "stream_usage = true",
            f"connections_max = {ENGINE_CONNECTIONS_MAX}",
        ]
    lines += ["[ledger]", f"directory = {json.dumps(str(directory / 'ledger'))}"]
    # The governor acts by default; a target, far off, makes it forecast too.
    lines += ["[slo]", "ttft_s = 10.0"]
    lines += ["[journal]", f"directory = {json.dumps(str(directory / 'journal'))}"]
    lines += ["[admin]", f"port = {admin_port}"]
    for n, key in enumerate(keys):
        digest = hashlib.sha256(key.encode()).hexdigest()
        lines += [f"[tenants.team-{n}]", f'key_hashes = ["sha256:{digest}"]']
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class LedgerTotals:
    """Rows by outcome, and the output tokens of all of them."""

    rows: dict[str, int]
    output_tokens: int

    @property
    def total(self) -> int:
        """Rows of all outcomes."""
        return sum(self.rows.values())


class MileageStack(Stack):
    """A running `mileage serve`; its data port takes both models."""

    def __init__(
        self,
        upstreams: Upstreams,
        directory: Path,
        *,
        core: int,
        server: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        port, self.admin_port = free_port(), free_port()
        keys = [f"sk-mileage-{n:02d}-{'c3' * 16}" for n in range(TENANTS)]
        config = directory / "mileage.toml"
        config.write_text(
            mileage_config(
                upstreams,
                directory,
                port=port,
                admin_port=self.admin_port,
                keys=keys,
                server=server,
            )
        )
        program = str(Path(sys.executable).parent / "mileage")
        version = first_line([program, "--version"])
        super().__init__("mileage", version, chat_port=port, stream_port=port, key=keys[0])
        self.database = directory / "ledger" / "ledger.sqlite"
        argv = [program, "serve", "--config", str(config)]
        service = Service("mileage", argv, core=core, log=directory / "mileage.log")
        self.service = self.start(service, f"http://127.0.0.1:{port}/readyz", timeout_s=60)

    def __enter__(self) -> MileageStack:
        return self

    def ledger(self) -> LedgerTotals:
        """What the ledger's database holds now."""
        with closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)) as database:
            rows = database.execute(
                "SELECT outcome, count(*), total(output_tokens) FROM requests GROUP BY outcome"
            ).fetchall()
        return LedgerTotals(
            rows={outcome: count for outcome, count, _ in rows},
            output_tokens=round(sum(tokens for _, _, tokens in rows)),
        )

    def settled_ledger(self, at_least: int, timeout_s: float = 60.0) -> LedgerTotals:
        """The same once it holds `at_least` so many rows and no more come, or at the timeout."""
        deadline = time.monotonic() + timeout_s
        before = LedgerTotals({}, 0)
        while True:
            now = self.ledger()
            if (now.total >= at_least and now == before) or time.monotonic() > deadline:
                return now
            before = now
            time.sleep(1.0)

    def counted_requests(self) -> int:
        """Requests that its own /metrics counts, all outcomes."""
        url = f"http://127.0.0.1:{self.admin_port}/metrics"
        text = LOCAL.open(url, timeout=5).read().decode()
        samples = (s for family in text_string_to_metric_families(text) for s in family.samples)
        return round(sum(s.value for s in samples if s.name == "mileage_requests_total"))
