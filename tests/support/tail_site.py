"""A real gateway with its embedded engine under load, and something that goes wrong meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from mileage.cli.bench_tail_records import read_timelines
from mileage.cli.bench_tail_watch import TailWatch, WatchOptions
from mileage.loadgen.planned_call import PlannedCall
from mileage.loadgen.run import LoadRun, run_load
from mileage.loadgen.run_options import RunOptions
from mileage.loadgen.target import Target
from mileage.measure.tail import attribute_tail
from mileage.measure.tail_report import TailOptions, TailReport
from tests.support.gateway import Gateway

__all__ = ["AT_S", "TailSite", "bursts", "collecting_environment", "planned"]

HOOK = '''
"""Runs in each worker: where the file GROW comes, it makes a heap; where COLLECT comes, it has it
collected."""
import gc, os, sys, threading, time

def wait(name):
    while not os.path.exists(os.path.join({directory!r}, name)):
        time.sleep(0.02)

def hook():
    wait("grow")
    gc.disable()
    heap = [[] for _ in range({objects})]
    open(os.path.join({directory!r}, "grown"), "w").close()
    while True:  # it is not freed, which would take time too
        wait("collect")
        os.remove(os.path.join({directory!r}, "collect"))
        for _ in range({times}):
            gc.collect()

if "mileage.cli.worker" in sys.orig_argv:
    threading.Thread(target=hook, daemon=True).start()
'''
MODEL = "smollm2"
AT_S = 2.5
"""When it goes wrong, after the run's begin."""


def collecting_environment(directory: Path, *, objects: int, times: int) -> dict[str, str]:
    """Environment of a gateway whose workers collect a large heap when `directory` has a file."""
    directory.mkdir(parents=True, exist_ok=True)
    text = HOOK.format(directory=str(directory), objects=objects, times=times)
    (directory / "sitecustomize.py").write_text(text)
    return {"PYTHONPATH": str(directory)}


def bursts(
    count: int, size: int, *, every_s: float, output_tokens: int, also: Sequence[PlannedCall] = ()
) -> list[PlannedCall]:
    """`size` short requests at once, again and again, with others between them."""
    calls = [
        planned(i * every_s, f"Tell me about number {i * size + n}.", output_tokens)
        for i in range(count)
        for n in range(size)
    ]
    ordered = sorted([*calls, *also], key=lambda call: call.scheduled_s)
    return [msgspec.structs.replace(call, index=i) for i, call in enumerate(ordered)]


def planned(at_s: float, prompt: str, output_tokens: int) -> PlannedCall:
    """One streamed chat request."""
    body: dict[str, Any] = {
        "model": MODEL,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": output_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
    }
    return PlannedCall(
        index=0,
        scheduled_s=at_s,
        path=b"/v1/chat/completions",
        body=msgspec.json.encode(body),
        output_tokens=output_tokens,
    )


class TailSite:
    """The gateway, and what is known of it."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway

    @property
    def engine_pid(self) -> int:
        """The embedded engine's process."""
        (pid,) = self.gateway.listening.engine_pids
        return pid

    @property
    def worker_pid(self) -> int:
        """The gateway's worker, which all requests go through."""
        (pid,) = self.gateway.listening.worker_pids
        return pid

    def report(
        self, calls: Sequence[PlannedCall], wrong: Callable[[], None] | None = None
    ) -> TailReport:
        """Run the load with all that `mileage bench tail` looks at; `wrong` is done meanwhile."""
        listening = self.gateway.listening
        assert listening.admin_token_file is not None
        watch = TailWatch(
            WatchOptions(
                url=self.gateway.root,
                admin_url=listening.admin_url,
                admin_token=Path(listening.admin_token_file).read_text().strip(),
            )
        )

        async def run() -> LoadRun:
            await watch.start()
            timer = threading.Timer(AT_S, wrong or (lambda: None))
            timer.start()
            try:
                target = Target(url=self.gateway.root)
                return await run_load(calls, [target], RunOptions(drain_s=30.0))
            finally:
                timer.cancel()
                await watch.stop()
                timer.join()

        began_s = time.time()
        load = uvloop.run(run())
        ids = {r.request_id for r in load.records if r.request_id is not None}
        assert listening.ledger is not None
        timelines = read_timelines(Path(listening.ledger), ids, since_utc_s=began_s)
        assert {r.outcome for r in load.records} == {"ok"}, load.records
        assert len(timelines) == len(calls)
        return attribute_tail(
            load.records,
            TailOptions(requests_min=3),
            timelines=timelines,
            pauses=watch.pauses(load.zero_monotonic_s),
        )
