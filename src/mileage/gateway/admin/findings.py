"""What the doctor makes of the gateway's own figures of the last minutes, for the dashboard."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mileage.doctor.collect.gateway_metrics import gateway_facts
from mileage.doctor.collect.gateway_setup import gateway_setup
from mileage.doctor.collect.likeness_facts import likeness_facts
from mileage.doctor.collect.merge_facts import overlay
from mileage.doctor.collect.page_window import PageAt, PageWindow
from mileage.doctor.finding import Diagnosis
from mileage.gateway.admin.responses import json
from mileage.measure.exposition import parse
from mileage.measure.metrics_page import Page
from mileage.measure.prompt_likeness import Likeness

__all__ = ["PERIOD_S", "FindingRow", "Findings", "FindingsApi", "GatewayWords"]

PERIOD_S: Final = 10.0
"""Between two readings of the gateway's own page: parsing it takes some milliseconds."""
WINDOW_PAGES: Final = 13
"""Two minutes: a burst has passed by then, and what has changed is seen soon."""
_LOG = logging.getLogger(__name__)


class GatewayWords(msgspec.Struct, frozen=True):
    """What the gateway says of itself: bodies of /api/v1/status and /api/v1/config."""

    status: bytes
    config: bytes
    likeness: Likeness | None


class FindingRow(msgspec.Struct, frozen=True, kw_only=True):
    """One finding. Losses are None where they cannot be known."""

    rule: str
    cause: str
    title: str
    severity: str
    confidence: float
    loss_low_usd_per_month: float | None
    loss_high_usd_per_month: float | None
    remedy: str
    evidence: list[str]
    consequence_of: str | None


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """The diagnosis of the last minutes; `window_s` is None before there is one."""

    verdict: str
    window_s: float | None
    findings: list[FindingRow]
    missing: list[str]


NOT_YET: Final = Findings(verdict="not_enough_evidence", window_s=None, findings=[], missing=[])


class FindingsApi:
    """The route /api/v1/findings. `look` is called again and again with the gateway's page; it
    keeps those of two minutes, and asks the rules when somebody asks it."""

    def __init__(self, words: Callable[[], GatewayWords]) -> None:
        self._words = words
        self._pages: deque[PageAt] = deque(maxlen=WINDOW_PAGES)
        self._making = asyncio.Lock()
        self._made_of_s: float | None = None
        self._body = msgspec.json.encode(NOT_YET)

    def routes(self) -> list[Route]:
        """The route, for the application's router."""
        return [Route("/api/v1/findings", self._findings, methods=["GET"])]

    def is_due(self, now_s: float) -> bool:
        """Is it time for another look? `now_s` is monotonic."""
        return not self._pages or now_s - self._pages[-1].at_s >= PERIOD_S

    def look(self, page: bytes, now_s: float) -> None:
        """Take the gateway's page of metrics. For a thread: parsing it takes a while."""
        self._pages.append(PageAt(now_s, Page(parse(page))))

    async def _findings(self, request: Request) -> Response:
        async with self._making:
            pages = list(self._pages)
            if len(pages) > 1 and pages[-1].at_s != self._made_of_s:
                self._made_of_s = pages[-1].at_s
                try:
                    words = self._words()
                    self._body = await asyncio.to_thread(_diagnosed, pages, words)
                except Exception:
                    _LOG.exception("admin plane: the findings could not be made")
        return json(msgspec.Raw(self._body))


def _diagnosed(pages: Sequence[PageAt], words: GatewayWords) -> bytes:
    # Here: all rules take longer to load than the rest of the admin plane, and few ask for them.
    from mileage.doctor.document import diagnose_document

    window = PageWindow(pages)
    setup = gateway_setup(words.status, words.config)
    document = overlay(
        gateway_facts(window, setup.slots), setup.document, likeness_facts(words.likeness)
    )
    return msgspec.json.encode(_shown(diagnose_document(document), window.seconds))


def _shown(diagnosis: Diagnosis, window_s: float | None) -> Findings:
    rows = []
    for found in diagnosis.findings:
        loss = found.loss_usd_per_month
        rows.append(
            FindingRow(
                rule=found.rule,
                cause=found.cause,
                title=found.title,
                severity=found.severity,
                confidence=found.confidence,
                loss_low_usd_per_month=None if loss is None else loss.low,
                loss_high_usd_per_month=None if loss is None else loss.high,
                remedy=found.remedy,
                evidence=[f"{e.signal} {_plain(e.value)} {e.limit}" for e in found.evidence],
                consequence_of=found.consequence_of,
            )
        )
    return Findings(
        verdict=diagnosis.verdict,
        window_s=window_s,
        findings=rows,
        missing=list(diagnosis.missing),
    )


def _plain(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
