"""The embedded engine with nothing before it: what clients get who call it straight.

`python -m benchmarks.support.embedded_alone --ready FILE [--slots N] [...]` starts the engine as
`mileage serve` does, and writes its URL, key and process id into FILE when it serves.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
from pathlib import Path

from mileage.engines.config import EmbeddedConfig
from mileage.engines.embedded.engine import EmbeddedEngine
from mileage.engines.embedded.resolve import resolve_model

__all__ = ["main"]


async def _run(config: EmbeddedConfig, ready: Path) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    engine = EmbeddedEngine(
        config,
        model_path=resolve_model(config, progress=lambda *_: None),
        state_dir=ready.parent,
        on_change=lambda _status: None,
    )
    await engine.start()
    found = {"url": engine.url, "authorization": engine.authorization, "pid": engine.pid}
    draft = ready.with_suffix(".new")
    draft.write_text(json.dumps(found))
    os.replace(draft, ready)
    await stop.wait()
    await engine.stop(1.0)


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ready", type=Path, required=True)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--weights", default="as-is")
    options = parser.parse_args()
    config = EmbeddedConfig(slots=options.slots, threads=options.threads, weights=options.weights)
    asyncio.run(_run(config, options.ready))


if __name__ == "__main__":
    main()
