"""A thousand slow clients: they must not delay others, and the slow senders must be cut off.

`make bench-slowloris`, or `python -m benchmarks.slowloris [--json]`. Exit code: 0 others are not
delayed, 1 they are, 3 no verdict.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence

from benchmarks.support.engine_upstream import EngineUpstream
from benchmarks.support.judges import ExactBody
from benchmarks.support.machine import describe, pinned, raise_file_limit
from benchmarks.support.memory import MIB, Sampler
from benchmarks.support.mileage import MileageStack
from benchmarks.support.open_loop import OpenLoopResult, run_open_loop
from benchmarks.support.output import Output, scratch_directory
from benchmarks.support.payloads import CHAT_MODEL, chat_answer, chat_request, http_request
from benchmarks.support.probe import Probe
from benchmarks.support.processes import NotReadyError, exit_on_signals
from benchmarks.support.stacks import Upstreams
from benchmarks.support.statistics import quantile
from benchmarks.support.verdict import NO_VERDICT, Bar, Verdict, verdict
from benchmarks.support.watch import GATEWAY_CORE, LOAD_CORE, CoreUse, Watch, disturbances

__all__ = ["main"]

CLIENTS = 1000
RATE_PER_S = 300.0
WINDOW_S = 7.0
SETTLE_S = 5.0
"""Endless streams first fill the kernel's buffers: a transfer in bulk, and not what is measured."""
TIMEOUT_S = 18.0
"""Of head and body: the attack outlasts it, and the measurement ends before it."""
ATTACK_S = 24.0
NEW_CONNECTIONS = 100
BARS = (
    Bar("delay_p50_ms", 1.0, at_least=False),
    Bar("delay_p99_ms", 5.0, at_least=False),
    Bar("slow_senders_open", 1, at_least=False),
    Bar("rss_growth_mib", 256, at_least=False),
)


class Others:
    """The normal clients: kept connections at a constant rate, then new connections in turn."""

    def __init__(self, mileage: MileageStack) -> None:
        body, judge = chat_request(CHAT_MODEL), ExactBody(chat_answer())
        self._mileage, self._port, self._judge = mileage, mileage.chat_port, judge
        self._request = http_request(body, key=mileage.key)
        self._probe = Probe(self._port, http_request(body, key=mileage.key, close=True), judge)

    def measure(self) -> tuple[OpenLoopResult, list[float], CoreUse]:
        """Latencies at a constant rate, and of requests on connections of their own."""
        watch = Watch(self._mileage)
        result = run_open_loop(
            self._port, self._request, self._judge, rate_per_s=RATE_PER_S, duration_s=WINDOW_S
        )
        fresh_s = []
        for _ in range(NEW_CONNECTIONS):
            began_s = time.monotonic()
            self._probe()
            fresh_s.append(time.monotonic() - began_s)
            time.sleep(0.005)
        if self._probe.first_error is not None:
            result.complain(self._probe.first_error)
        return result, sorted(fresh_s), watch.read()


def measure(output: Output) -> tuple[dict[str, object], list[str], list[str]]:
    """Figures, what went wrong, and what disturbed the run."""
    with (
        scratch_directory() as directory,
        pinned(LOAD_CORE),
        EngineUpstream(directory, core=LOAD_CORE) as engine,
        MileageStack(
            Upstreams(engine.port, engine.port),
            directory / "mileage",
            core=GATEWAY_CORE,
            server={"header_timeout_s": TIMEOUT_S, "body_timeout_s": TIMEOUT_S},
        ) as mileage,
    ):
        others = Others(mileage)
        output.say("without slow clients")
        others.measure()
        calm, calm_fresh_s, calm_use = others.measure()
        idle_rss = sum(process.memory_info().rss for process in mileage.service.tree())
        output.say(f"with {CLIENTS} slow clients")
        with Sampler(mileage.service) as sampler, _attack(mileage) as attacker:
            assert attacker.stdout is not None
            if attacker.stdout.readline().strip() != "connected":
                raise NotReadyError("the slow clients could not connect")
            time.sleep(SETTLE_S)
            slow, slow_fresh_s, slow_use = others.measure()
            report, _ = attacker.communicate(timeout=ATTACK_S + 30)
        fates: dict[str, dict[str, object]] = json.loads(report)
    failures = [
        f"{when}: {run.errors} errors, the first: {run.first_error}"
        for when, run in (("without slow clients", calm), ("with slow clients", slow))
        if run.errors
    ]
    senders = [fates["slow_head"], fates["slow_body"]]
    figures: dict[str, object] = {
        **_delays("", calm.latencies_s, slow.latencies_s),
        **_delays("_new_connection", calm_fresh_s, slow_fresh_s),
        "slow_clients": sum(int(str(fate["clients"])) for fate in fates.values()),
        "slow_senders_open": sum(
            int(str(fate["clients"])) - int(str(fate["closed"])) for fate in senders
        ),
        "rss_growth_mib": round((max(sampler.rss) - idle_rss) / MIB, 1),
        "fates": fates,
        "requests": calm.sent + slow.sent,
        "errors": calm.errors + slow.errors,
        "machine": describe(),
    }
    return figures, failures, disturbances([calm_use, slow_use])


def _delays(name: str, calm_s: list[float], slow_s: list[float]) -> dict[str, float | None]:
    figures: dict[str, float | None] = {}
    for label, q in (("p50", 0.5), ("p99", 0.99)):
        if not (calm_s and slow_s):
            figures[f"delay{name}_{label}_ms"] = None
            continue
        without_ms, with_ms = quantile(calm_s, q) * 1e3, quantile(slow_s, q) * 1e3
        figures[f"without{name}_{label}_ms"] = round(without_ms, 3)
        figures[f"with{name}_{label}_ms"] = round(with_ms, 3)
        figures[f"delay{name}_{label}_ms"] = round(with_ms - without_ms, 3)
    return figures


def _attack(mileage: MileageStack) -> subprocess.Popen[str]:
    arguments = [mileage.chat_port, mileage.key, CLIENTS, ATTACK_S]
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.support.attacker", *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.slowloris", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the JSON object only")
    arguments = parser.parse_args(argv)
    output = Output(quiet=arguments.json)
    exit_on_signals()
    raise_file_limit(8192)
    try:
        figures, failures, doubts = measure(output)
    except NotReadyError as error:
        return output.finish({}, Verdict(NO_VERDICT, (str(error),)))
    output.table(
        "Slow clients",
        ("figure", "value"),
        [(k, v) for k, v in figures.items() if isinstance(v, (int, float))],
    )
    return output.finish(figures, verdict(figures, BARS, failures=failures, doubts=doubts))


if __name__ == "__main__":
    sys.exit(main())
