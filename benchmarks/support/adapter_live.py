"""Adapters on the embedded engine behind a real gateway: the keeper against LRU, in turns."""

from __future__ import annotations

import json
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.support.lora_gguf import lora_gguf
from benchmarks.support.processes import LOCAL, Service, free_port

__all__ = ["LiveArm", "live_arms"]

_BLOCK = 5
"""Requests of one arm before the other has its turn."""
_START_S, _ANSWER_S = 300.0, 600.0
_PROMPT = "The capital of France is"
_KEEPER = "[lora]\n"
_LRU = "[lora]\nprefetch = false\nresidence_ratio = 0.0\nhalf_life_s = 0.001\n"
"""Where no use counts a moment later, the least recent one is the coldest, and goes at once."""


@dataclass(slots=True)
class LiveArm:
    """What its requests met. `hits` found their adapter loaded; `wrong` were not answered as that
    adapter has answered before, or as another one has."""

    requests: int = 0
    hits: int = 0
    wrong: int = 0
    seconds: list[float] = field(default_factory=list)
    """Of each request, from sent to answered."""
    loads: int = 0


class _Gateway:
    def __init__(self, directory: Path, rules: str, adapters: dict[str, Path], slots: int) -> None:
        directory.mkdir()
        port, admin_port = free_port(), free_port()
        self._url, self._admin = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{admin_port}"
        self._token = "t" * 32
        entry = '[[adapters]]\nname = "{}"\npath = "{}"\nbase = "smollm2"\n'
        config = directory / "mileage.toml"
        config.write_text(
            f"[server]\nport = {port}\n[admin]\nport = {admin_port}\n{rules}"
            f"[embedded]\nslots = 1\ncontext_tokens = 512\nlora_slots = {slots}\n"
            + "".join(entry.format(name, path) for name, path in adapters.items())
        )
        program = str(Path(sys.executable).parent / "mileage")
        argv = [program, "serve", "--config", str(config)]
        environment = {"XDG_STATE_HOME": str(directory), "MILEAGE_ADMIN_TOKEN": self._token}
        log = directory / "gateway.log"
        self.service = Service("mileage", argv, core=None, log=log, env=environment)

    def wait_ready(self) -> None:
        self.service.wait_ready(f"{self._url}/readyz", _START_S)

    def loaded(self) -> set[str]:
        """The adapters that the engine holds now."""
        headers = {"authorization": f"Bearer {self._token}"}
        found = _call(urllib.request.Request(f"{self._admin}/api/v1/adapters", headers=headers))
        return {each["name"] for each in found["adapters"] if each["resident"]}

    def loads(self) -> int:
        """So far."""
        with LOCAL.open(f"{self._admin}/metrics", timeout=_ANSWER_S) as answer:
            lines = answer.read().decode().splitlines()
        counts = [line for line in lines if line.startswith("mileage_adapter_loads_total{")]
        return sum(int(float(line.rpartition(" ")[2])) for line in counts)

    def ask(self, adapter: str) -> str:
        """Its answer to a prompt."""
        body = {"model": adapter, "prompt": _PROMPT, "max_tokens": 6, "temperature": 0}
        found = _call(
            urllib.request.Request(
                f"{self._url}/v1/completions",
                data=json.dumps(body).encode(),
                headers={"content-type": "application/json"},
            )
        )
        return str(found["choices"][0]["text"])


def live_arms(names: Sequence[str], *, adapters: int, slots: int) -> tuple[LiveArm, LiveArm]:
    """Ask for the adapters a0, a1 ... of `names` one after the other; the keeper's arm, and LRU's.

    A few of one arm, then as many of the other, so that a machine that is slower for a while is so
    for both.
    """
    arms = (LiveArm(), LiveArm())
    with tempfile.TemporaryDirectory(prefix="mileage-lora-") as text, ExitStack() as stack:
        directory = Path(text)
        files = {f"a{n}": lora_gguf(directory / f"a{n}.gguf", n) for n in range(adapters)}
        gateways = []
        for rules, name in ((_KEEPER, "keeper"), (_LRU, "lru")):
            gateway = _Gateway(directory / name, rules, files, slots)
            stack.enter_context(gateway.service)
            gateway.wait_ready()
            gateways.append(gateway)
        said: dict[str, str] = {}
        for start in range(0, len(names), _BLOCK):
            for arm, gateway in zip(arms, gateways, strict=True):
                for name in names[start : start + _BLOCK]:
                    _ask(arm, gateway, name, said)
        for arm, gateway in zip(arms, gateways, strict=True):
            arm.loads = gateway.loads()
    return arms


def _ask(arm: LiveArm, gateway: _Gateway, name: str, said: dict[str, str]) -> None:
    hit = name in gateway.loaded()
    started_s = time.monotonic()
    text = gateway.ask(name)
    arm.seconds.append(time.monotonic() - started_s)
    arm.requests += 1
    arm.hits += hit
    arm.wrong += said.setdefault(name, text) != text or list(said.values()).count(text) > 1


def _call(request: urllib.request.Request) -> Any:
    with LOCAL.open(request, timeout=_ANSWER_S) as answer:
        return json.load(answer)
