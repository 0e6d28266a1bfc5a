"""KvEvents before vLLM's own publisher: its frames, its replay, its events."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from mileage.policy.prefix_directory.directory import BlockDirectory
from mileage.scrape.kv_events import KvEvents
from tests.support.gateway import free_port

pytestmark = pytest.mark.heavy

zmq = pytest.importorskip("zmq", reason="pyzmq is not installed")

WAIT_S = 600.0
SCRIPT = """
import sys
from vllm.distributed.kv_events import (
    AllBlocksCleared, BlockRemoved, BlockStored, KVEventBatch, ZmqEventPublisher
)
port, replay_port = sys.argv[1:]
publisher = ZmqEventPublisher(
    0, endpoint=f"tcp://*:{port}", replay_endpoint=f"tcp://*:{replay_port}", buffer_steps=100
)

def stored(number, parent=None):
    return BlockStored(
        block_hashes=[number.to_bytes(32, "big")],
        parent_block_hash=None if parent is None else parent.to_bytes(32, "big"),
        token_ids=[number] * 16, block_size=16, lora_id=None, medium="GPU", lora_name=None,
        extra_keys=[("salt",)], group_idx=0,
    )

events = {
    "store": [stored(1), stored(2, parent=1), stored(3, parent=2)],
    "remove": [BlockRemoved([(3).to_bytes(32, "big")], "GPU", group_idx=0)],
    "clear": [AllBlocksCleared()],
}
print("ready", flush=True)
for line in sys.stdin:
    publisher.publish(KVEventBatch(ts=1.0, events=events[line.strip()]))
publisher.shutdown()
"""


def test_its_frames_are_read_and_its_replay_is_asked_for(vllm_python: Path, tmp_path: Path) -> None:
    script, ports = tmp_path / "publisher.py", (free_port(), free_port())
    script.write_text(SCRIPT)
    with subprocess.Popen(
        [str(vllm_python), str(script), *map(str, ports)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            while process.stdout.readline() not in ("ready\n", ""):
                pass
            asyncio.run(listen(process, ports))
        finally:
            process.stdin.close()
            process.kill()


async def listen(process: subprocess.Popen[str], ports: tuple[int, int]) -> None:
    """Hear what the publisher is told to publish; the first batches nobody has heard."""
    assert process.stdin is not None
    directory = BlockDirectory()
    url, replay_url = (f"tcp://127.0.0.1:{port}" for port in ports)
    process.stdin.write("store\nremove\n")
    process.stdin.flush()
    events = KvEvents(url, replay_url, directory, replica="vllm")
    events.start()
    try:
        async with asyncio.timeout(WAIT_S):
            while events.totals.replayed < 2:  # a subscription takes a moment to arrive
                process.stdin.write("remove\n")
                process.stdin.flush()
                await asyncio.sleep(0.3)
            assert (events.totals.gaps, events.totals.lost, events.totals.bad) == (1, 0, 0)
            assert len(directory.held_by("vllm")) == 2
            assert events.feed.stored_tokens == 32
            assert events.feed.evicting
            process.stdin.write("clear\n")
            process.stdin.flush()
            while directory.held_by("vllm"):  # noqa: ASYNC110 -- what is waited for tells nobody
                await asyncio.sleep(0.05)
            assert events.feed.cleared_total == 1
    finally:
        await events.stop()
