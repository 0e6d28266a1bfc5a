"""docs/reference/engines.md says of each kind of engine what the table of kinds does."""

from __future__ import annotations

from pathlib import Path

import pytest

from mileage.core.request import Endpoint
from mileage.engines.config import EngineConfig, EngineKind
from mileage.engines.kinds import KINDS
from mileage.scrape.health import FAILURES_MAX, TIMEOUTS_MAX
from mileage.scrape.watch import BACKOFF_MAX_S

PATHS: dict[Endpoint, str] = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "embeddings": "/v1/embeddings",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
}


def listed(names: tuple[str, ...]) -> str:
    """Names as a cell has them."""
    return ", ".join(f"`{name}`" for name in names) or "-"


def asked_row(kind: EngineKind) -> str:
    """What the gateway asks an engine of this kind."""
    known = KINDS[kind]
    metrics = listed(known.metrics_paths) + (" (text or JSON)" if known.json_metrics else "")
    cells = (known.title, listed(known.health_paths), metrics, listed(known.version_paths))
    return f"| `{kind}` | {' | '.join(cells)} |"


def endpoints_row(kind: EngineKind) -> str:
    """Which endpoints it has."""
    known = KINDS[kind]
    cells = [
        "yes" if name in known.has else "perhaps" if name in known.may else "no" for name in PATHS
    ]
    usage = "yes" if known.stream_usage else "no"
    return f"| `{kind}` | {' | '.join(cells)} | {usage} |"


@pytest.fixture(scope="module")
def page(repository: Path) -> str:
    """The page."""
    return (repository / "docs" / "reference" / "engines.md").read_text("utf-8")


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_has_both_rows_of_the_kind(page: str, kind: EngineKind) -> None:
    assert [line for line in page.splitlines() if line.startswith(f"| `{kind}` |")] == [
        asked_row(kind),
        endpoints_row(kind),
    ]


def test_the_page_names_the_endpoints_in_the_order_of_its_columns(page: str) -> None:
    (head,) = [line for line in page.splitlines() if "/v1/chat/completions" in line and "|" in line]
    assert [cell.strip(" `") for cell in head.split("|")[2:-2]] == list(PATHS.values())


def test_the_page_has_the_numbers_of_the_code(page: str) -> None:
    usual = EngineConfig(kind="vllm", url="http://h")
    text = " ".join(page.split())
    assert f"every {usual.health_interval_s:g} s" in text
    assert f"every {usual.scrape_interval_s:g} s" in text
    assert f"{FAILURES_MAX} failed checks in a row" in text
    assert f"{TIMEOUTS_MAX} in a row" in text
    assert f"up to {BACKOFF_MAX_S:g} s" in text
