"""Journals of any sequence of events: written, read and replayed, they give the same actions."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import hypothesis.strategies as st
import msgspec
from hypothesis import given, settings

from mileage.control.config import ControlConfig, CostsConfig, GovernorConfig
from mileage.control.controller import Controller
from mileage.control.replay import Replayer
from mileage.control.snapshot import dump_state
from mileage.core.actions import Action, AskBudget, Dispatch, Join, Reject, WakeAt
from mileage.core.errors import TraceError
from mileage.core.events import (
    Arrived,
    BudgetGranted,
    BudgetRecalled,
    Cancelled,
    ConfigChanged,
    Event,
    Failed,
    Finished,
    FirstToken,
    Observed,
    OthersSeen,
    ReplicaDown,
    ReplicaUp,
    ShareChanged,
    Woke,
)
from mileage.core.replica import ReplicaView
from mileage.core.slo import SloConfig
from mileage.policy.tenants import BudgetConfig, TenantLimits
from mileage.storage import journal_writer as module
from mileage.storage.journal_files import find_journals
from mileage.storage.journal_reader import JournalReader
from mileage.storage.journal_writer import JournalWriter, new_header
from tests.support.experiments import any_experiment
from tests.support.journals import request

NAMES = ("a", "b", "c")
LACKS: dict[str, tuple[Any, ...]] = {"c": ("embeddings",)}
POLICIES = ("static", "aimd", "volatility", "utilisation", "tail_memory", "mixture", "model")


def configuration(random: Random) -> ControlConfig:
    """One of many: every policy and mode, with and without targets and tenants."""
    return ControlConfig(
        governor=GovernorConfig(
            mode=random.choice(("act", "act", "observe", "off")),
            policy=random.choice(POLICIES),  # type: ignore[arg-type]
            limit_max=random.choice((1, 4, 64)),
            queue_max=random.choice((2, 1000)),
        ),
        slo=SloConfig(ttft_s=random.choice((None, 0.5)), itl_s=random.choice((None, 0.05))),
        costs=CostsConfig(usd_per_gpu_hour=2.0),
        tenants={
            "acme": TenantLimits(
                weight=3.0,
                requests_per_min=random.choice((None, 600.0)),
                concurrency_max=random.choice((None, 5)),
                budgets=(BudgetConfig(amount=1e6, unit="tokens", per="day"),),
            )
        },
    )


class Host:
    """A worker's world: it sends events, obeys the actions, and journals both."""

    def __init__(self, seed: int, directory: Path, segment_bytes_max: int) -> None:
        self.random = Random(seed)
        config = configuration(self.random)
        self.controller = Controller(NAMES, config=config, random=Random(seed), lacks=LACKS)
        header = new_header(
            version="0.0",
            worker=0,
            replicas=NAMES,
            lacks=LACKS,
            config=msgspec.json.encode(config).decode(),
            seed=seed,
        )
        self.journal = JournalWriter(
            directory,
            header,
            segment_bytes_max=segment_bytes_max,
            bytes_max=1 << 30,
            clock=lambda: self.now_s,
            utc_ns=lambda: 1_700_000_000_000_000_000,
        )
        self.now_s = 100.0
        self.number = 0
        self.placed: dict[int, str] = {}
        self.open: set[int] = set()
        self.wake_s: float | None = None
        self.asked: list[AskBudget] = []
        self.told: list[tuple[float, Event, tuple[Action, ...]]] = []
        self.journal.start(lambda: dump_state(self.controller))

    def tell(self, event: Event) -> None:
        """Tell the controller, journal it, obey."""
        actions = tuple(self.controller.handle(event, self.now_s))
        self.journal.handled(self.now_s, event, actions)
        self.told.append((self.now_s, event, actions))
        for action in actions:
            if isinstance(action, Dispatch):
                self.placed[action.request_id] = action.replica
            elif isinstance(action, Reject | Join):
                if isinstance(action, Reject):
                    self.open.discard(action.request_id)
                self.placed.pop(action.request_id, None)
            elif isinstance(action, WakeAt):
                self.wake_s = action.at_s
            elif isinstance(action, AskBudget):
                self.asked.append(action)

    def run(self, steps: int) -> None:
        """So many events."""
        for name in NAMES[: self.random.randrange(1, 4)]:
            self.tell(ReplicaUp(name, ("llama", "qwen")))
        for _ in range(steps):
            self.now_s += self.random.choice((0.0, 0.001, 0.01, 0.2))
            if self.wake_s is not None and self.now_s >= self.wake_s:
                self.wake_s = None
                self.tell(Woke())
            self.tell(self._event())
        self.journal.close()

    def _event(self) -> Event:
        draw = self.random.random()
        running = sorted(self.placed)
        if draw < 0.4:
            return self._arrival()
        if draw < 0.8 and running:
            return self._answer(self.random.choice(running))
        if draw < 0.85 and self.open:
            request_id = self.random.choice(sorted(self.open))
            self.open.discard(request_id)
            self.placed.pop(request_id, None)
            return Cancelled(request_id)
        return self._outside()

    def _arrival(self) -> Event:
        random = self.random
        self.number += 1
        self.open.add(self.number)
        batch = random.random() < 0.2
        return Arrived(
            request(
                self.number,
                tenant=random.choice(("acme", "beta", "gamma")),
                model=random.choice(("llama", "qwen", "nonsense")),
                endpoint="embeddings" if batch else "chat",
                stream=not batch,
                arrived_s=self.now_s,
                prompt_tokens_estimate=random.randrange(4000),
                prefix_key=random.choice((None, random.randrange(2**64))),
                merge_key=random.choice((None, None, f"m{random.randrange(4)}")),
                batch_key="b" if batch else None,
                priority=random.choice((None, "low", "high")),
                image_patches=random.choice((0, 0, 500)),
            )
        )

    def _answer(self, request_id: int) -> Event:
        draw = self.random.random()
        if draw < 0.4:
            return FirstToken(request_id)
        replica = self.placed.pop(request_id)
        if draw < 0.9:
            self.open.discard(request_id)
            return Finished(request_id, 100, 50, self.random.randrange(1, 300), 0.05, 0.01)
        retryable = self.random.random() < 0.7
        if not retryable:
            self.open.discard(request_id)
        return Failed(request_id, replica, self.random.choice(("connect", "broken")), retryable)

    def _outside(self) -> Event:
        random = self.random
        if self.asked and random.random() < 0.5:
            asked = self.asked.pop()
            if random.random() < 0.2:
                return BudgetRecalled(asked.account, asked.window)
            return BudgetGranted(asked.account, asked.window, asked.amount, 1000.0)
        draw, name = random.random(), random.choice(NAMES)
        if draw < 0.6:
            view = ReplicaView(
                replica=name,
                observed_s=self.now_s - 0.1,
                running=random.randrange(64),
                waiting=random.choice((None, 0, 9)),
                running_max=random.choice((None, 64)),
                kv_cache_usage_ratio=random.choice((None, random.random())),
                kv_tokens_max=100_000,
                output_tokens_total=self.now_s * 1000,
                prompt_tokens_total=self.now_s * 3000,
                compute_busy_ratio=random.random(),
            )
            return Observed(view)
        if draw < 0.7:
            return ReplicaDown(name, "health check")
        if draw < 0.85:
            return ReplicaUp(name, random.choice((("llama",), ("llama", "qwen"))))
        if draw < 0.9:
            if random.random() < 0.5:
                return OthersSeen(((name, random.choice((1, 10**6))),))
            return ShareChanged(random.choice((0.5, 1.0)))
        if draw < 0.95:
            return any_experiment(NAMES, random, self.now_s)
        settings = msgspec.json.encode(configuration(random)).decode()
        return ConfigChanged(random.randrange(2, 100), settings)


def replay(paths: Sequence[Path], *, alone: bool) -> Replayer:
    """The journal replayed, as one chain or each segment from its own snapshot."""
    replayer = Replayer()
    goes_on = False
    for files in find_journals(paths):
        for file in files:
            with JournalReader(file.path) as reader:
                header = reader.header()
                assert header is not None
                replayer.begin(header, str(file.path), goes_on=goes_on and not alone)
                for record in reader.records():
                    assert replayer.step(record) is None, replayer.difference
                goes_on = reader.ending == "rotated"
    return replayer


@given(st.integers(0, 2**32), st.sampled_from([1 << 12, 1 << 14, 1 << 30]))
@settings(max_examples=60, deadline=None)
def test_any_journal_is_replayed_identically(seed: int, segment_bytes_max: int) -> None:
    directory = Path(tempfile.mkdtemp())
    # Small writes, so that there are many segments.
    with patch.object(module, "BATCH_RECORDS", 10):
        host = Host(seed, directory, segment_bytes_max)
        host.run(600)
        assert host.journal.dropped_total == 0, host.journal.last_error
        chain = replay([directory], alone=False)
        each = replay([directory], alone=True)
        assert chain.records == each.records == len(host.told)
        assert chain.restored == 1
        segments = find_journals([directory])[0]
        assert each.restored == len(segments)
        if segment_bytes_max == 1 << 12:
            assert len(segments) >= 2
        assert chain.failed_open == each.failed_open == []
    shutil.rmtree(directory)


@given(st.integers(0, 2**32), st.data())
@settings(max_examples=30, deadline=None)
def test_a_damaged_journal_is_replayed_as_far_as_it_goes(seed: int, data: st.DataObject) -> None:
    directory = Path(tempfile.mkdtemp())
    try:
        host = Host(seed, directory, 1 << 30)
        host.run(100)
        (file,) = find_journals([directory])[0]
        content = bytearray(file.path.read_bytes())
        place = data.draw(st.integers(0, len(content) - 1))
        if data.draw(st.booleans()):
            del content[place:]
        else:
            content[place] ^= data.draw(st.integers(1, 255))
        file.path.write_bytes(content)
        replayer = Replayer()
        try:
            with JournalReader(file.path) as reader:
                header = reader.header()
                if header is not None:
                    replayer.begin(header, "a", goes_on=False)
                    for record in reader.records():
                        assert replayer.step(record) is None
        except TraceError as error:
            assert 0 <= error.line <= len(host.told) + 1  # noqa: PT017 -- either is fine
    finally:
        shutil.rmtree(directory)
