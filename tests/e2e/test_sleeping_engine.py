"""An engine with a sleep level behind a real gateway: put to sleep when idle, woken by requests."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.support.gateway import Gateway, wait_until
from tests.support.sleeping_server import SleepingServer

HI: list[Any] = [{"role": "user", "content": "Say hi."}]
WAIT_S = 120.0


def config(server: SleepingServer, policy: str = "never") -> str:
    return f"""
[idle]
policy = "{policy}"
fixed_s = 1.0
resident_min_s = 0.0
[[engines]]
kind = "vllm"
name = "big"
url = "{server.url}"
sleep_level = 1
"""


def say(gateway: Gateway) -> str:
    with gateway.client(timeout=WAIT_S) as client:
        answer = client.chat.completions.create(model="llama", messages=HI)
    return answer.choices[0].message.content or ""


def test_an_idle_engine_sleeps_and_a_burst_wakes_it_once(tmp_path: Path) -> None:
    with SleepingServer() as server, Gateway(tmp_path, config=config(server)) as gateway:
        assert say(gateway) == "Hi."
        gateway.reload(config(server, "fixed"))
        wait_until(lambda: server.asleep, "it sleeps", WAIT_S)
        wait_until(lambda: gateway.replica("big")["state"] == "asleep", "it is shown so", WAIT_S)
        gateway.reload(config(server))  # the burst may take longer than it would stay awake
        before = server.wakes
        with ThreadPoolExecutor(8) as pool:
            assert set(pool.map(say, [gateway] * 8)) == {"Hi."}
        assert (server.wakes - before, server.chats, server.misused) == (1, 9, [])


def test_an_engine_that_sleeps_when_the_gateway_starts_is_woken_too(tmp_path: Path) -> None:
    with (
        SleepingServer(asleep=True) as server,
        Gateway(tmp_path, config=config(server)) as gateway,
    ):
        assert gateway.listening.models == ["llama"]
        assert (say(gateway), server.misused) == ("Hi.", [])
