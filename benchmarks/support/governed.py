"""`mileage serve` with a governor under test: its configuration, its journal, its metrics."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from benchmarks.support.processes import LOCAL, Service, free_port
from benchmarks.support.stacks import Stack

__all__ = ["GovernedStack", "replay", "tenant_key", "toml_text"]

_PROGRAM = str(Path(sys.executable).parent / "mileage")
_ENGINE_PROCESS = "mileage.engines.embedded.child"


class GovernedStack(Stack):
    """A running `mileage serve` with the given sections on top of what every run needs.

    `engine_url`: the step engine, which runs `engine_slots` requests at once; without one the
    embedded engine serves, its process pinned to `engine_core`. `tenants`: sections by name; each
    has one key (`tenant_key`). The journal, the ledger and all state are below `directory`.
    """

    def __init__(
        self,
        directory: Path,
        *,
        core: int,
        sections: Mapping[str, Any],
        engine_url: str | None = None,
        engine_slots: int | None = None,
        engine_core: int | None = None,
        tenants: Mapping[str, Mapping[str, Any]] | None = None,
        model: str = "steps",
        timeout_s: float = 120.0,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        port, self.admin_port = free_port(), free_port()
        self.journal = directory / "journal"
        config: dict[str, Any] = {
            "server": {"port": port, "connections_max": 5000},
            "admin": {"port": self.admin_port},
            "ledger": {"directory": str(directory / "ledger")},
            "journal": {"directory": str(self.journal)},
            **sections,
        }
        if engine_url is not None:
            engine = {"kind": "vllm", "name": "steps", "url": engine_url}
            engine["dcgm_url"] = f"{engine_url}/dcgm/metrics"
            config["engines"] = [{**engine, "running_max": engine_slots}]
        if tenants:
            config["tenants"] = {
                name: {"key_hashes": [_key_hash(name)], **limits}
                for name, limits in tenants.items()
            }
        path = directory / "mileage.toml"
        path.write_text(toml_text(config))
        super().__init__("mileage", "-", chat_port=port, stream_port=port)
        self.served_model = model
        service = Service(
            "mileage",
            [_PROGRAM, "serve", "--config", str(path)],
            core=core,
            log=directory / "mileage.log",
            env={"XDG_STATE_HOME": str(directory / "state")},
        )
        self.service = self.start(service, f"http://127.0.0.1:{port}/readyz", timeout_s)
        if engine_core is not None:
            self._pin_engine(engine_core)

    def __enter__(self) -> GovernedStack:
        return self

    def samples(self, name: str) -> dict[tuple[tuple[str, str], ...], float]:
        """Samples of one series of its /metrics, by their labels."""
        url = f"http://127.0.0.1:{self.admin_port}/metrics"
        with LOCAL.open(url, timeout=5) as answer:
            text = answer.read().decode()
        return {
            tuple(sorted(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name
        }

    def _pin_engine(self, core: int) -> None:
        """Move the embedded engine, every thread of it, to a core of its own."""
        for process in self.service.tree():
            if _ENGINE_PROCESS in process.cmdline():
                for thread in os.listdir(f"/proc/{process.pid}/task"):
                    os.sched_setaffinity(int(thread), {core})


def tenant_key(name: str) -> str:
    """The API key of a tenant of these runs."""
    return f"sk-bench-{name}-{'d4' * 16}"


def _key_hash(name: str) -> str:
    return "sha256:" + hashlib.sha256(tenant_key(name).encode()).hexdigest()


def toml_text(config: Mapping[str, Any]) -> str:
    """TOML of nested mappings, lists of mappings as arrays of tables; None is left out."""
    lines: list[str] = []
    _write_table(lines, (), config)
    return "\n".join(lines) + "\n"


def _write_table(lines: list[str], path: Sequence[str], table: Mapping[str, Any]) -> None:
    tables: list[tuple[str, Any]] = []
    for key, value in table.items():
        if isinstance(value, Mapping) or _is_tables(value):
            tables.append((key, value))
        elif value is not None:
            lines.append(f"{_key(key)} = {json.dumps(value)}")
    for key, value in tables:
        name = ".".join(map(_key, (*path, key)))
        if isinstance(value, Mapping):
            lines.append(f"[{name}]")
            _write_table(lines, (*path, key), value)
            continue
        for item in value:
            lines.append(f"[[{name}]]")
            _write_table(lines, (*path, key), item)


def _is_tables(value: object) -> bool:
    return (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and bool(value)
        and isinstance(value[0], Mapping)
    )


def _key(key: str) -> str:
    return key if key.replace("_", "").replace("-", "").isalnum() else json.dumps(key)


def replay(journal: Path, timeout_s: float = 300.0) -> dict[str, Any]:
    """What `mileage replay --json` says of a journal, and `exit_code`.

    Where it prints no JSON, `error` has what it printed instead.
    """
    done = subprocess.run(
        [_PROGRAM, "replay", str(journal), "--json"],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    try:
        document = json.loads(done.stdout)
    except ValueError:
        document = {"error": (done.stderr or done.stdout)[-500:]}
    return {**document, "exit_code": done.returncode}
