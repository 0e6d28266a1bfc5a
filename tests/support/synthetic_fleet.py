"""A fleet without processes: seeded traffic on a clock that the test moves."""

from __future__ import annotations

import math
import time
from random import Random
from typing import Any

from mileage.control.accounts import window_at
from mileage.control.config import GovernorMode
from mileage.control.lending import BudgetState
from mileage.core.actions import RejectReason
from mileage.core.replica import ReplicaView
from mileage.core.slo import SloConfig
from mileage.gateway.adapter_desk import AdapterDesk
from mileage.gateway.adapter_state import AdapterStates
from mileage.gateway.admin.experiment import ExperimentDesk
from mileage.gateway.admin.fleet import FleetState, LedgerStatus, ReplicaHealth
from mileage.gateway.admin.reload import ConfigStatus, Reloaded
from mileage.gateway.admin.telemetry import TelemetryStatus
from mileage.gateway.admin.trial import Trial
from mileage.gateway.knob_status import KnobEvent, KnobStatus
from mileage.gateway.messages import ReplicaStatus, Report
from mileage.gateway.model_desk import ModelDesk
from mileage.measure.metrics import Counter, Families, FamilySnapshot, Gauge, Histogram
from tests.support.synthetic_governor import SyntheticGovernor

__all__ = ["SyntheticFleet"]

TTFT_BOUNDS = (0.01, 0.02, 0.04, 0.06, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 30.0)
SLO = SloConfig(ttft_s=0.25, itl_s=0.04)
CODES: dict[RejectReason, str] = {
    "rate_limited": "rate_limit_exceeded",
    "budget_exhausted": "insufficient_quota",
}
ITL_BOUNDS = (0.002, 0.005, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.06, 0.1, 0.2, 0.5, 1.0)


class _Worker(Families):
    """What one worker process has counted."""

    def __init__(self, pid: int, governor: SyntheticGovernor) -> None:
        self.pid, self.governor = pid, governor
        self.requests = Counter(
            "mileage_requests_total", "Requests.", ("model", "endpoint", "tenant", "outcome")
        )
        labels = ("model", "tenant")
        self.prompt = Counter("mileage_prompt_tokens_total", "Prompt tokens.", labels)
        self.cached = Counter("mileage_cached_tokens_total", "Cached tokens.", labels)
        self.output = Counter("mileage_output_tokens_total", "Output tokens.", labels)
        self.ttft = Histogram(
            "mileage_time_to_first_token_seconds", "TTFT.", ("model",), bounds=TTFT_BOUNDS
        )
        self.itl = Histogram(
            "mileage_inter_token_latency_seconds", "ITL.", ("model",), bounds=ITL_BOUNDS
        )
        self.connections = Gauge("mileage_connections", "Open client connections.")
        self.gpu_s = Counter("mileage_gpu_seconds_total", "GPU time.", labels)
        self.usd = Counter("mileage_cost_usd_total", "Cost.", labels)
        self.rejected = Counter("mileage_requests_rejected_total", "Refused.", ("tenant", "reason"))
        self.merged = Counter("mileage_requests_merged_total", "Merged.", ("kind",))
        self.failures = Counter("mileage_upstream_failures_total", "Failed.", ("replica", "kind"))
        self.slo = Counter("mileage_slo_requests_total", "Targets.", ("model", "target", "met"))


class SyntheticFleet:
    """Some replicas behind some workers; `load` scales the traffic, 0 is silence.

    Satisfies the Protocol Fleet. `advance` moves it to a time and makes the traffic up to there.
    """

    def __init__(
        self,
        *,
        seed: int = 1,
        replicas: tuple[str, ...] = ("h100-a:8000", "h100-b:8000", "h100-c:8000"),
        model: str = "qwen3-32b",
        tenants: tuple[str, ...] = ("search", "support", "batch"),
        pids: tuple[int, ...] = (5_000_001, 5_000_002),
        load: float = 1.0,
        now_s: float = 0.0,
        slo: SloConfig = SLO,
        mode: GovernorMode = "act",
        priced: bool = True,
    ) -> None:
        self.state = FleetState()
        self.load, self.model, self.tenants = load, model, tenants
        self.ledger: LedgerStatus | None = LedgerStatus(ok=True, rows_total=0, lag_bytes=0)
        self.telemetry: TelemetryStatus | None = None
        self.config: ConfigStatus | None = ConfigStatus(version=1, since_utc_s=0, read_utc_s=0)
        self.reloads: list[Reloaded | Exception] = []
        """What the next reloads come to."""
        self.drains = 0
        self.trials: list[Trial] = []
        self.frozen = False
        self._random = Random(seed)
        self._now_s = now_s
        self.slo, self._priced = slo, priced
        self._workers = [_Worker(pid, SyntheticGovernor(slo, mode)) for pid in pids]
        self.spends: list[BudgetState] = []
        self.experiments: ExperimentDesk | None = None
        self.knobs: list[KnobStatus] = []
        self.knob_news: list[KnobEvent] = []
        self._health: dict[str, ReplicaHealth] = {}
        self._running = dict.fromkeys(replicas, 0.0)
        for name in replicas:
            self.set_health(name, up=True)

    @property
    def now_s(self) -> float:
        """Up to where there was traffic."""
        return self._now_s

    def check(self, health: ReplicaHealth) -> None:
        """What the poller says of a replica from now on, in full."""
        self._health[health.name] = health

    def set_health(self, name: str, *, up: bool | None, reason: str | None = None) -> None:
        """What the poller says of a replica from now on."""
        known = {each.name: each for each in self.replica_health()}.get(name)
        self.check(
            ReplicaHealth(
                name=name,
                kind="vllm",
                url=f"http://{name}",
                enabled=known is None or known.enabled,
                up=up,
                models=(self.model,),
                reason=reason,
                checked_s=self._now_s,
            )
        )

    def advance(self, now_s: float) -> None:
        """Make the traffic up to this time, and report it; nothing happens while `frozen`."""
        if self.frozen:
            return
        elapsed_s, self._now_s = now_s - self._now_s, now_s
        swing = 1 + 0.35 * math.sin(now_s / 400) + 0.12 * math.sin(now_s / 47)
        in_use = [each.name for each in self.replica_health() if each.up and each.enabled]
        arrivals = self._poisson(24 * self.load * swing * elapsed_s) if in_use else 0
        pressure = min(0.97, 0.55 * self.load * swing * len(self._running) / max(1, len(in_use)))
        for _ in range(arrivals):
            self._request(self._random.choice(self._workers), pressure)
        for name in self._running:
            self._observe(name, pressure if name in in_use else None)
            for worker in self._workers:
                if name in in_use and self.load:
                    worker.governor.govern(name, pressure, now_s, self._random)
        for worker in self._workers:
            self._report(worker)
        if self.ledger is not None and self.ledger.ok:
            rows = int((self.ledger.rows_total or 0) + arrivals)
            self.ledger = LedgerStatus(
                ok=True, rows_total=rows, lag_bytes=8_192, lost_total=0, damaged_total=0
            )

    def _request(self, worker: _Worker, pressure: float) -> None:
        random = self._random
        tenant = random.choices(self.tenants, [3, 2, 1][: len(self.tenants)])[0]
        draw = random.random()
        outcome = "ok" if draw < 0.975 else random.choice(["failed", "cancelled", "rejected"])
        worker.requests.add((self.model, "chat", tenant, outcome))
        if outcome == "rejected":
            reason = worker.governor.refuse(tenant, self._now_s, random)
            worker.rejected.add((tenant, CODES.get(reason, reason)))
        if outcome != "ok":
            return
        if random.random() < 0.04:
            worker.merged.add(("same",))
        labels = (self.model, tenant)
        prompt, output = int(random.lognormvariate(6.4, 0.9)), int(random.lognormvariate(4.7, 0.6))
        worker.prompt.add(labels, prompt)
        worker.cached.add(labels, int(prompt * random.betavariate(2, 3)))
        worker.output.add(labels, output)
        slow = 1 / (1.02 - pressure)
        first_s, longest_s = 0.045 * slow * random.lognormvariate(0, 0.5), 0.0
        worker.ttft.observe(first_s, (self.model,))
        for _ in range(6):
            gap_s = 0.011 * (1 + 0.5 * pressure * slow / 4) * random.lognormvariate(0, 0.25)
            worker.itl.observe(gap_s, (self.model,), max(1, output // 6))
            longest_s = max(longest_s, gap_s)
        self._judge(worker, first_s, longest_s)
        gpu_s = (prompt / 40 + output) * 0.0009
        worker.gpu_s.add(labels, gpu_s)
        if self._priced:
            worker.usd.add(labels, gpu_s * 2.5 / 3600)

    def _judge(self, worker: _Worker, first_s: float, longest_s: float) -> None:
        met = []
        for target, value_s, most_s in (
            ("ttft", first_s, self.slo.ttft_s),
            ("itl", longest_s, self.slo.itl_s),
        ):
            if most_s is not None:
                met.append(value_s <= most_s)
                worker.slo.add((self.model, target, "yes" if met[-1] else "no"))
        if met:
            worker.slo.add((self.model, "all", "yes" if all(met) else "no"))

    def budget(
        self, tenant: str, unit: Any, per: Any, amount: int, spent: int, **more: int
    ) -> None:
        """Give a tenant a budget, in whole units, of which so much is spent."""
        fields = {"reserved": 0, "excess": 0, "possible_overshoot": 0, "uncertain": 0, **more}
        self.spends.append(
            BudgetState(
                account=f"{tenant}/{unit}/{per}",
                tenant=tenant,
                unit=unit,
                per=per,
                amount=amount,
                spent=spent,
                window_ends_utc_s=window_at(per, time.time()).ends_utc_s,
                **fields,
            )
        )

    def governors(self) -> list[SyntheticGovernor]:
        """Those of the workers."""
        return [worker.governor for worker in self._workers]

    def _observe(self, name: str, pressure: float | None) -> None:
        if pressure is None:
            self._running[name] = 0.0
            return  # what is down is not observed: its last view grows old
        target = 64 * pressure * (1 if self.load else 0)
        self._running[name] += 0.3 * (target - self._running[name]) + self._random.gauss(0, 1.5)
        running = max(0, min(64, round(self._running[name]))) if self.load else 0
        waiting = max(0, round((pressure - 0.72) * 60 + self._random.gauss(0, 2)))
        self.state.view(
            ReplicaView(
                replica=name,
                observed_s=self._now_s,
                running=running,
                waiting=waiting if self.load else 0,
                running_max=64,
                kv_cache_usage_ratio=running / 70,
            )
        )

    def _report(self, worker: _Worker) -> None:
        views = {view.replica: view for view in self.state.views()}
        share = len(self._workers)
        statuses = []
        for health in self.replica_health():
            view = views.get(health.name)
            live = view is not None and health.up
            statuses.append(
                ReplicaStatus(
                    name=health.name,
                    state="up" if health.up else "down",
                    models=(self.model,),
                    in_flight=((view.running or 0) // share) if view is not None and live else 0,
                    reason=health.reason,
                    limit=self._limit_part(worker, health.name) if live else None,
                    limit_reason="step 38.1 ms at 60 + stall 4.2 ms, cap 45 ms: held at 60",
                    policy_failed=health.name in worker.governor.policy_failed,
                )
            )
        in_flight = sum(status.in_flight for status in statuses)
        worker.connections.set(in_flight + 20)
        self.state.report(
            Report(
                pid=worker.pid,
                at_s=self._now_s,
                connections=in_flight + 20,
                in_flight=in_flight,
                draining=self.drains > 0,
                ledger_ok=self.ledger is None or self.ledger.ok,
                families=worker.snapshot(),
                replicas=statuses,
                governor=worker.governor.report(self.tenants),
            )
        )

    def _limit_part(self, worker: _Worker, replica: str) -> float | None:
        governor = worker.governor
        if governor.mode == "off" or governor.failure is not None:
            return None
        return governor.limits.get(replica, 64) / len(self._workers)

    def _poisson(self, mean: float) -> int:
        if mean <= 0:
            return 0
        return max(0, round(self._random.gauss(mean, math.sqrt(mean))))

    def reports(self) -> list[Report]:
        return self.state.reports()

    def families(self) -> list[FamilySnapshot]:
        return self.state.families()

    def views(self) -> list[ReplicaView]:
        return self.state.views()

    def replica_health(self) -> list[ReplicaHealth]:
        return list(self._health.values())

    def ledger_status(self) -> LedgerStatus | None:
        return self.ledger

    def telemetry_status(self) -> TelemetryStatus | None:
        return self.telemetry

    def budget_states(self) -> list[BudgetState]:
        return self.spends

    def model_desk(self) -> ModelDesk | None:
        """No model can sleep here."""
        return None

    def adapter_desk(self) -> AdapterDesk | None:
        """No adapters are loaded here."""
        return None

    def adapter_states(self) -> AdapterStates:
        """None of them."""
        return AdapterStates(adapters=[], replicas=[])

    def experiment_desk(self) -> ExperimentDesk | None:
        return self.experiments

    def knob_statuses(self) -> list[KnobStatus]:
        return self.knobs

    def knob_events(self) -> list[KnobEvent]:
        return self.knob_news

    def engine_pids(self) -> list[int]:
        return []

    def config_public(self) -> dict[str, Any]:
        return {"server": {"host": "127.0.0.1", "port": 8080}}

    def config_status(self) -> ConfigStatus | None:
        return self.config

    async def reload(self) -> Reloaded:
        answer = self.reloads.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def try_settings(self, trial: Trial) -> Reloaded:
        self.trials.append(trial)
        return await self.reload()

    def drain(self) -> None:
        self.drains += 1

    def set_replica(self, name: str, enabled: bool) -> bool:
        for health in self.replica_health():
            if health.name == name:
                self.check(
                    ReplicaHealth(
                        name=name,
                        kind=health.kind,
                        url=health.url,
                        enabled=enabled,
                        up=health.up,
                        models=health.models,
                        reason=health.reason,
                        checked_s=health.checked_s,
                    )
                )
                return True
        return False
