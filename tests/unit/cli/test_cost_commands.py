"""`mileage cost forecast`, `anomalies`, `models` and `prices`: what they say, and their codes."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.support.billed_ledger import month_of_rows
from tests.support.cost_cli import CostSite
from tests.support.usage_rows import HOUR_NS, START_S

NOW_S = START_S + 19 * 86_400
PRICE = "[[billing.prices]]\nusd_per_gpu_hour = 3.0\n"


@pytest.fixture(autouse=True)
def _now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: float(NOW_S))


@pytest.fixture
def site(tmp_path: Path) -> CostSite:
    """Five weeks up to now; three hours ago a tenant used eight times as much as ever."""
    site = CostSite(tmp_path)
    site.config(PRICE)
    hours = 35 * 24
    usage, capacity = month_of_rows(NOW_S - hours * 3600, hours)
    for place, row in enumerate(usage):
        if row.hour_at_utc_s == NOW_S - 3 * 3600 and row.tenant == "lab":
            more = 2 * HOUR_NS
            usage[place] = msgspec.structs.replace(row, gpu_ns=row.gpu_ns + more)
    site.rows(usage, capacity, NOW_S)
    return site


def test_the_month_is_told_with_an_interval_that_adds_up(site: CostSite) -> None:
    document = site.document("forecast")
    assert document["month"] == "2026-11"
    total = document["total"]
    # Two replicas of four GPUs at 3 USD, all month.
    assert float(total["expected"]) == pytest.approx(8 * 3.0 * 24 * 30, rel=0.01)
    assert float(total["actual"]) == pytest.approx(8 * 3.0 * 24 * 19, rel=0.01)
    for key in ("actual", "expected"):
        parts = [float(account[key]) for account in document["accounts"]]
        assert sum(parts) == pytest.approx(float(total[key]))
    assert "at the end" in site.run("forecast").stdout


def test_without_prices_gpu_hours_are_told(site: CostSite) -> None:
    site.config("[billing]\npublic_prices = false\n")
    document = site.document("forecast")
    assert document["unit"] == "gpu_hours"
    assert float(document["total"]["expected"]) == pytest.approx(8 * 24 * 30, rel=0.01)


def test_too_little_history_exits_with_3_and_says_so(site: CostSite) -> None:
    site.config(PRICE + "[billing.forecast]\nhistory_days_min = 28\nhistory_days = 27\n")
    assert "fewer than 28 days" in site.document("forecast", code=3)["warnings"][0]


def test_an_hour_that_stands_out_is_named_with_its_account(site: CostSite) -> None:
    document = site.document("anomalies", code=1)
    assert [each["account"] for each in document["anomalies"]] == ["lab"]
    (anomaly,) = document["anomalies"]
    assert anomaly["hour_at_utc_s"] == NOW_S - 3 * 3600
    assert anomaly["actual_gpu_ns"] > 4 * HOUR_NS
    assert float(anomaly["extra_usd"]) == pytest.approx(12.0, rel=0.1)
    shown = site.run("anomalies", code=1).stdout
    assert "2026-11-19 21:00" in shown


def test_no_anomaly_exits_with_0_and_no_history_with_3(site: CostSite) -> None:
    assert (
        site.document("anomalies", "--since", "2026-11-18", "--until", "2026-11-19")["anomalies"]
        == []
    )
    site.document("anomalies", "--since", "2026-10-17", "--until", "2026-10-19", code=3)


def test_models_are_compared_by_the_cost_of_a_right_answer(site: CostSite) -> None:
    document = site.document(
        "models",
        *("--accuracy", "llama-3.1-70b=0.8", "--review", "llama-3.1-70b=0.1"),
        *("--review-usd", "2", "--usd-per-request", "elsewhere=0.5", "--accuracy", "elsewhere=1"),
    )
    own, other = document["models"]
    assert document["baseline"] == own["model"] == "llama-3.1-70b"
    total = float(own["usd_per_request"]) + 0.2
    assert float(own["usd_per_answer"]) == pytest.approx(total)
    assert float(own["usd_per_correct_answer"]) == pytest.approx(total / 0.8)
    assert own["requests_per_gpu_day_busy"] > own["requests_per_gpu_day"]
    assert float(other["cost_ratio"]) == pytest.approx(0.5 / (total / 0.8))
    assert other["requests_per_gpu_day"] is None


def test_facts_can_be_in_a_file_and_options_go_before_it(site: CostSite, tmp_path: Path) -> None:
    file = tmp_path / "facts.toml"
    file.write_text(
        'accuracy_of = "HumanEval pass@1"\nbaseline = "b"\n'
        '[models."llama-3.1-70b"]\naccuracy_ratio = 0.5\n[models.b]\nusd_per_request = 1.0\n'
    )
    facts = ("--facts", str(file))
    document = site.document("models", *facts, "--accuracy", "llama-3.1-70b=0.75")
    assert document["baseline"] == "b"
    assert float(document["models"][0]["accuracy_ratio"]) == 0.75
    assert "HumanEval pass@1" in site.run("models", *facts).stdout


@pytest.mark.parametrize(
    ("options", "key"),
    [
        pytest.param(["--accuracy", "a"], "--accuracy", id="no number"),
        pytest.param(["--accuracy", "a=1.5"], "--accuracy", id="no ratio"),
        pytest.param(["--accuracy", "a=nan"], "--accuracy", id="not a number"),
        pytest.param(["--review-usd", "-1"], "--review-usd", id="a negative wage"),
        pytest.param(["--baseline", "c"], "--baseline", id="a baseline that is no model"),
        pytest.param(["--facts", "/no/such.toml"], "--facts", id="no file"),
    ],
)
def test_bad_facts_are_named(site: CostSite, options: list[str], key: str) -> None:
    assert site.refused("models", *options).key == key


def test_a_fact_that_is_unknown_is_named_with_its_line(site: CostSite, tmp_path: Path) -> None:
    file = tmp_path / "facts.toml"
    file.write_text("[models.a]\naccuracy = 0.5\n")
    error = site.refused("models", "--facts", str(file))
    assert error.key == "models.a.accuracy"
    assert str(error.place).endswith("facts.toml:2")


def test_prices_are_those_of_the_ledgers_replicas(site: CostSite) -> None:
    prices = site.document("prices")["prices"]
    assert [price["replica"] for price in prices] == ["chat-1", "chat-2"]
    assert {price["basis"] for price in prices} == {"contract"}


def test_a_price_that_nobody_knows_exits_with_3(site: CostSite) -> None:
    site.config("")
    assert site.document("prices", "--gpu", "h20", code=3)["prices"][0]["usd_per_gpu_hour"] is None
    assert "2025-11-30 to 2026-05-03" in site.run("prices").stdout
    assert site.refused("prices", "--gpu", "h20", "--at", "soon").key == "--at"
    assert site.refused("prices", "--gpu", "nope").key == "--gpu"


@pytest.mark.parametrize("command", ["forecast", "anomalies"])
@pytest.mark.parametrize("by", ["request", "day", "nope", "label:", "tenant:x"])
def test_only_accounts_that_go_on_are_foreseen_and_offered(
    site: CostSite, command: str, by: str
) -> None:
    refused = site.refused(command, "--by", by)
    assert refused.key == "--by"
    offered = refused.expected.removeprefix("one of ").split(", ")
    assert offered == ["tenant", "team", "model", "adapter", "key", "replica", "label:NAME"]


@pytest.mark.parametrize("command", ["forecast", "anomalies"])
def test_accounts_that_are_periods_are_refused(site: CostSite, command: str) -> None:
    assert site.refused(command, "--by", "day").key == "--by"


@pytest.mark.parametrize("command", ["forecast", "anomalies", "models"])
def test_an_empty_ledger_exits_with_3_and_says_what_is_missing(
    tmp_path: Path, command: str
) -> None:
    site = CostSite(tmp_path)
    site.rows([], [])
    assert "mileage serve" in site.document(command, code=3)["warnings"][0]


def test_what_is_told_of_models_and_prices_fits_into_80_columns(
    site: CostSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.config("")
    monkeypatch.setattr("mileage.cli.wide_console._WIDTH_WITHOUT_TERMINAL", 80)
    shown = site.run("models", "--usd-per-request", "elsewhere=0.5").stdout
    assert "per card, day" in shown
    assert "elsewhere" in shown
    prices = site.run("prices").stdout
    assert "2025-11-30 to 2026-05-03" in prices
    assert "chat-1: median of 4 public prices" in prices
    for line in (shown + prices).splitlines():
        assert len(line.rstrip()) <= 80
