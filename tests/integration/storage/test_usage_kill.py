"""A gateway killed with SIGKILL while it shares GPU time out: every sum is proven all the same."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from random import Random

from mileage.ledger.attribution_config import AttributionConfig
from mileage.storage.feeder import Feeder
from mileage.storage.usage_reader import UsageReader
from tests.support.usage_world import HOUR_UTC_S, at_ns

ROUNDS = 6


def test_sums_are_proven_after_any_death(tmp_path: Path, repository: Path) -> None:
    random = Random(6)
    settled = []
    for _ in range(ROUNDS):
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.storage.usage_child", str(tmp_path)],
            stdout=subprocess.PIPE,
            cwd=repository,
            start_new_session=True,
        )
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            assert child.stdout.readline() == b"worked\n"
            time.sleep(random.uniform(0, 1.0))
        finally:
            child.send_signal(signal.SIGKILL)
            child.wait()
            if child.stdout is not None:
                child.stdout.close()
        with closing(UsageReader(tmp_path)) as reader:
            assert reader.verify().problems == []
            settled.append(reader.settled_until_utc_s() or 0)
    assert settled == sorted(settled)
    end_s = settled[-1] - HOUR_UTC_S + 2000.0
    feeder = Feeder(tmp_path, attribution=AttributionConfig(), utc_ns=lambda: at_ns(end_s))
    while feeder.step():
        pass
    status = feeder.status()
    feeder.stop()
    assert status.attribution_error is None
    with closing(UsageReader(tmp_path)) as reader:
        verdict = reader.verify()
        gaps = reader.gaps(HOUR_UTC_S, HOUR_UTC_S + end_s)
        capacity = list(reader.capacity(HOUR_UTC_S, HOUR_UTC_S + 86_400))
        requests = list(reader.requests(HOUR_UTC_S, HOUR_UTC_S + 86_400))
    assert verdict.problems == []
    assert verdict.requests_open == 0
    assert verdict.requests == len(requests) > 300
    assert {gap.replica for gap in gaps} == {"a", "b"}
    assert sum(row.capacity_ns for row in capacity) > 0
    assert verdict.gpu_ns > 0
    assert all(use.settled for use in requests)
    assert any(use.request.outcome == "lost" for use in requests)
