"""GatewayLedger: a gateway's ledger and what comes and goes between it and the other parts."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from mileage.cli.config import Config, ledger_directory
from mileage.cli.ledger_spends import LedgerSpends
from mileage.cli.replica_watch import ReplicaWatch
from mileage.cli.shared_budgets import SharedBudgets
from mileage.core.errors import LedgerError
from mileage.core.request_name import gateway_tag
from mileage.gateway.admin.fleet import LedgerStatus
from mileage.gateway.budget_desk import ExchangeParts, ReadSpent, SpendQuery
from mileage.ledger.replica_clock import ReplicaSeen
from mileage.storage.feeder import Feeder, FeederStatus
from mileage.storage.gateway_identity import gateway_identity
from mileage.storage.gpu_minutes import GpuMinute
from mileage.storage.postgres import PostgresStore
from mileage.storage.sqlite import SqliteStore
from mileage.storage.step_directory import STEPS_NAME, begin_step_directory
from mileage.storage.store import LedgerStore

__all__ = ["GatewayLedger"]

_log = logging.getLogger(__name__)


class GatewayLedger:
    """The feeder of the ledger's database and the record of how long replicas were up.

    `config` is that of the start: `enabled`, directory, database and attribution hold until the
    end. Without `ledger.enabled` nothing is kept, and there is nothing to tell.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self.directory = ledger_directory(config.ledger)
        shared = config.ledger.enabled and config.ledger.database is not None
        self._identity = gateway_identity(self.directory) if shared else None
        # Engines tell of steps where they lie beside one gateway's ledger: see Feeder.
        tells_steps = config.ledger.enabled and config.attribution.enabled and not shared
        self.request_tag = _begin_steps(self.directory) if tells_steps else None
        """With it engines are told names of requests by which their steps name them, too."""
        self._feeder: Feeder | None = None
        self._watch: ReplicaWatch | None = None

    def start(
        self, seen: Callable[[], Mapping[str, ReplicaSeen]], parts: contextlib.AsyncExitStack
    ) -> None:
        """Feed, and look at what `seen` tells of replicas, until `parts` are taken down.

        Raises LedgerError where the ledger can never be used.
        """
        config = self._config
        if not config.ledger.enabled:
            return
        shares = config.attribution.enabled
        self._feeder = feeder = Feeder(
            self.directory,
            retention_days=config.ledger.retention_days,
            attribution=config.attribution if shares else None,
            open_store=self._open_store,
        )
        parts.push_async_callback(asyncio.to_thread, feeder.stop)
        feeder.start()
        if shares:
            self._watch = ReplicaWatch(seen, feeder.note_replicas)
            self._watch.start()
            parts.push_async_callback(self._watch.stop)

    def configure(self, config: Config) -> None:
        """What a reload changes."""
        if self._feeder is not None:
            self._feeder.retention_days = config.ledger.retention_days

    def look(self) -> None:
        """A replica is about to change, or has just done so."""
        if self._watch is not None:
            self._watch.look()

    def note_gpu_minutes(self, rows: Sequence[GpuMinute]) -> None:
        """Minutes of GPUs that have ended; from any thread."""
        if self._feeder is not None:
            self._feeder.note_gpu_minutes(rows)

    def feeder_status(self) -> FeederStatus | None:
        """The feeder's own; None while there is none."""
        return None if self._feeder is None else self._feeder.status()

    def status(self) -> LedgerStatus | None:
        """For the admin plane; None while there is no ledger."""
        status = self.feeder_status()
        if status is None:
            return None
        return LedgerStatus(
            ok=status.error is None,
            error=status.error
            or status.damage
            or status.attribution_error
            or status.engine_requests_error,
            rows_total=status.rows_total,
            lag_bytes=status.lag_bytes,
            lost_total=status.lost_total,
            refused_total=status.refused_total,
            unwritten_total=status.unwritten_total,
            damaged_total=status.damaged_total,
            steps_total=status.steps_total,
            steps_lost_total=status.steps_lost_total,
            engine_requests_total=status.engine_requests_total,
            engine_requests_lost_total=status.engine_requests_lost_total,
        )

    def spends(self) -> ReadSpent:
        """What tells the budgets how much was spent before; after `start`."""
        if self._feeder is None:
            return _no_spends
        place = self._config.ledger.database or self.directory
        return LedgerSpends(place, self._feeder, identity=self._identity).read

    def pool(self, parts: contextlib.AsyncExitStack) -> ExchangeParts | None:
        """Where budgets are shared with other gateways; None: there are none."""
        address = self._config.ledger.database
        if address is None or self._identity is None:
            return None
        pool = SharedBudgets(address, self._identity)
        parts.callback(pool.close)
        return pool.exchange

    def _open_store(self, path: Path) -> LedgerStore:
        """The ledger's database: the shared one, or that of the directory."""
        address = self._config.ledger.database
        if address is None or self._identity is None:
            return SqliteStore(path)
        return PostgresStore(address, identity=self._identity)


def _begin_steps(directory: Path) -> str | None:
    """Make the place for engines' steps; the gateway's tag in them. None: it cannot be made."""
    try:
        tag = gateway_tag(gateway_identity(directory))
        begin_step_directory(directory / STEPS_NAME, tag)
    except LedgerError as error:
        _log.warning("engines cannot tell of their steps: %s", error)
        return None
    return tag


async def _no_spends(queries: Sequence[SpendQuery]) -> list[int]:
    """Nothing was kept; there are no budgets either (see Config)."""
    return [0] * len(queries)
