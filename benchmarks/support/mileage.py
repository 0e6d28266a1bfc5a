"""Mileage under test: `mileage serve` with key check, metering, ledger, governor, journal on.

Without metering it records no request, shares no GPU time out, and looks at no GPU.
"""

from __future__ import annotations

import hashlib
import json
import math
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

__all__ = ["LedgerTotals", "MileageStack", "metering_lines", "mileage_config"]

ENGINE_CONNECTIONS_MAX = 10_000
TENANTS = 8
"""Tenants with a key each; the load comes from the first."""


def metering_lines(directory: Path, *, metering: bool) -> list[str]:
    """The lines of a configuration that switch metering on, as it comes, or off."""
    if metering:
        return ["[ledger]", f"directory = {json.dumps(str(directory / 'ledger'))}"]
    return [
        line
        for section in ("ledger", "attribution", "telemetry")
        for line in (f"[{section}]", "enabled = false")
    ]


def mileage_config(
    upstreams: Upstreams,
    directory: Path,
    *,
    port: int,
    admin_port: int,
    keys: Sequence[str],
    server: Mapping[str, float] = MappingProxyType({}),
    metering: bool = True,
    nvml: bool = False,
) -> str:
    """The TOML of `mileage serve`; `server` adds to its section [server]. `nvml`: the engine of
    streams is on this machine's GPUs."""
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
        if nvml and name == "events":
            lines.append("nvml = true")
    lines += metering_lines(directory, metering=metering)
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
        core: int | None,
        server: Mapping[str, float] = MappingProxyType({}),
        metering: bool = True,
        nvml: bool = False,
        env: Mapping[str, str] | None = None,
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
                metering=metering,
                nvml=nvml,
            )
        )
        program = str(Path(sys.executable).parent / "mileage")
        version = first_line([program, "--version"])
        super().__init__("mileage", version, chat_port=port, stream_port=port, key=keys[0])
        self.database = directory / "ledger" / "ledger.sqlite"
        argv = [program, "serve", "--config", str(config)]
        service = Service("mileage", argv, core=core, log=directory / "mileage.log", env=env)
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

    def settled_behind_s(self) -> float:
        """For how long before now GPU time is not shared out yet."""
        query = "SELECT until_utc_ns FROM settled WHERE replica = ''"
        with closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)) as database:
            row = database.execute(query).fetchone()
        return math.inf if row is None else time.time() - row[0] / 1e9

    def unbooked(self) -> int:
        """Requests in the database whose GPU time is not shared out yet."""
        query = "SELECT count(*) FROM requests INDEXED BY requests_to_book WHERE booked < 2"
        with closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)) as database:
            return int(database.execute(query).fetchone()[0])

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
        return round(self.metrics("mileage_requests_total")["mileage_requests_total"])

    def metrics(self, *names: str) -> dict[str, float]:
        """Of its own /metrics: the sum of each name's samples, 0 where there are none."""
        url = f"http://127.0.0.1:{self.admin_port}/metrics"
        text = LOCAL.open(url, timeout=5).read().decode()
        sums = dict.fromkeys(names, 0.0)
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name in sums:
                    sums[sample.name] += sample.value
        return sums
