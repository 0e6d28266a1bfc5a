"""`mileage cost`: its document holds the contract, and what is wrong is told by name."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pytest

from mileage.core.errors import LedgerError
from mileage.storage.sqlite import DATABASE_NAME
from tests.support.cost_cli import CostSite
from tests.support.usage_rows import HOUR_NS, START_S, capacity_of, usage

PRICE = "[[billing.prices]]\nusd_per_gpu_hour = 3.0\n"
SINCE = ("--since", "2026-11-01", "--until", "2026-11-02")


@pytest.fixture(autouse=True)
def _december(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: float(START_S + 31 * 86_400))


@pytest.fixture
def site(tmp_path: Path) -> CostSite:
    """One hour of a replica: a used a third, b a sixth, 90 s were warm-up."""
    site = CostSite(tmp_path)
    site.config(PRICE)
    rows = [
        usage(
            tenant="a",
            labels="app=web",
            requests=10,
            requests_failed=1,
            prompt_tokens=1000,
            cached_tokens=400,
            output_tokens=100,
            gpu_ns=HOUR_NS // 3,
            prefill_ns=HOUR_NS // 12,
            low_ns=HOUR_NS // 4,
            high_ns=HOUR_NS // 2,
        ),
        usage(tenant="b", requests=4, output_tokens=7, gpu_ns=HOUR_NS // 6),
    ]
    warmup_ns = 90_000_000_000
    idle_ns = HOUR_NS - HOUR_NS // 3 - HOUR_NS // 6 - warmup_ns
    site.rows(rows, [capacity_of(rows, idle_ns=idle_ns, warmup_ns=warmup_ns, gpu="L40S")])
    return site


def test_accounts_and_idle_time_are_the_total_exactly(site: CostSite) -> None:
    document = site.document(*SINCE)

    assert document["gpu_ns_total"] == HOUR_NS
    assert document["usd_total"] == 3
    names = [account["name"] for account in document["accounts"]]
    assert names == ["a", "b", "(warm-up)"]
    gpu_ns = [account["gpu_ns"] for account in document["accounts"]]
    assert sum(gpu_ns) + document["idle_gpu_ns"] == HOUR_NS
    usd = [account["usd"] for account in document["accounts"]]
    assert sum(usd) + document["idle_usd"] == document["usd_total"]
    assert usd == [Decimal(1), Decimal("0.5"), Decimal("0.075")]
    assert sum(kind["usd"] for kind in document["where"].values()) == 3


def test_an_account_has_what_the_contract_says(site: CostSite) -> None:
    a = site.document(*SINCE)["accounts"][0]
    assert (a["requests"], a["requests_failed"]) == (10, 1)
    assert (a["prompt_tokens"], a["cached_tokens"], a["output_tokens"]) == (1000, 400, 100)
    assert a["interval"] == {
        "gpu_ns": [HOUR_NS // 4, HOUR_NS // 2],
        "usd": [Decimal("0.75"), Decimal("1.5")],
    }
    assert a["usd_per_request"] == Decimal("0.1")
    assert a["usd_per_mtok"]["output"] == 7500
    assert a["usd_per_mtok"]["computed"] == pytest.approx(Decimal(250_000_000) / 600_000)
    assert a["usd_per_mtok"]["cached"] is None


def test_the_ratio_of_cached_tokens_can_be_told(site: CostSite) -> None:
    site.config("[billing]\ncached_token_ratio = 0.5\n" + PRICE)
    per = site.document(*SINCE)["accounts"][0]["usd_per_mtok"]
    assert per["computed"] == pytest.approx(Decimal("312.5"))
    assert per["cached"] == per["computed"] / 2


def test_without_a_price_usd_is_null_and_gpu_time_is_counted(site: CostSite) -> None:
    site.config("[billing]\npublic_prices = false\n")
    document = site.document(*SINCE)
    assert document["usd_total"] is None
    assert document["idle_usd"] is None
    assert {account["usd"] for account in document["accounts"]} == {None}
    assert document["gpu_ns_total"] == HOUR_NS
    assert "no price of r0 (L40S)" in document["warnings"][0]
    shown = site.run(*SINCE).stdout
    assert "GPU time went to" in shown
    assert "! no price of r0" in shown


def test_idle_and_warm_up_time_can_be_paid_by_use(site: CostSite) -> None:
    document = site.document(*SINCE, "--spread", "use")
    assert [account["name"] for account in document["accounts"]] == ["a", "b"]
    assert [account["usd"] for account in document["accounts"]] == [2, 1]
    assert document["idle_gpu_ns"] == 0
    assert document["where"]["idle"]["gpu_ns"] > 0


def test_idle_time_can_be_paid_by_who_had_reserved_it(site: CostSite) -> None:
    site.config(PRICE + '[[billing.reservations]]\ntenant = "b"\ngpus = 0.25\n')
    document = site.document(*SINCE, "--spread", "reservation")
    accounts = {account["name"]: account for account in document["accounts"]}
    assert accounts["b"]["spread_gpu_ns"] == HOUR_NS // 4 - HOUR_NS // 6
    assert accounts["a"]["spread_gpu_ns"] == 0
    by_model = site.document(*SINCE, "--spread", "reservation", "--by", "model")
    names = [account["name"] for account in by_model["accounts"]]
    assert names == ["m", "(reserved, not used)", "(warm-up)"]


@pytest.mark.parametrize(
    ("by", "names"),
    [
        pytest.param("model", ["m"], id="model"),
        pytest.param("replica", ["r0"], id="replica"),
        pytest.param("adapter", ["(no adapter)"], id="none has an adapter"),
        pytest.param("label:app", ["web", "(no app)"], id="label"),
        pytest.param("team", ["core", "(no team)"], id="team"),
        pytest.param("day", ["2026-11-01"], id="day"),
        pytest.param("hour", ["2026-11-01T05:30+05:30"], id="hour of a zone of half an hour"),
    ],
)
def test_accounts_are_of_what_is_asked_for(site: CostSite, by: str, names: list[str]) -> None:
    site.config(PRICE + '[billing.teams.core]\ntenants = ["a"]\n')
    document = site.document(*SINCE, "--by", by, "--timezone", "Asia/Kolkata")
    found = [account["name"] for account in document["accounts"]]
    assert [name for name in found if name != "(warm-up)"] == names
    assert document["usd_total"] == 3


def test_the_others_are_one_account(site: CostSite) -> None:
    document = site.document(*SINCE, "--top", "1")
    assert [a["name"] for a in document["accounts"]] == ["a", "(warm-up)", "(others)"]
    assert sum(a["usd"] for a in document["accounts"]) + document["idle_usd"] == 3


def test_a_table_at_80_columns_has_every_figure(
    site: CostSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mileage.cli.wide_console._WIDTH_WITHOUT_TERMINAL", 80)
    shown = site.run(*SINCE).stdout
    assert max(len(line.rstrip()) for line in shown.splitlines()) <= 80
    assert "..." not in shown
    assert "1.00" in shown
    assert "dollars went to: prefill 8.3%, decode 42%, idle" in shown


def test_amounts_are_shown_in_the_bills_currency(site: CostSite) -> None:
    site.config('[billing]\ncurrency = "EUR"\ncurrency_per_usd = 0.5\n' + PRICE)
    shown = site.run(*SINCE).stdout
    assert "EUR/request" in shown
    assert "1.50" in shown


def test_the_csv_has_the_total_and_no_formula(site: CostSite, tmp_path: Path) -> None:
    rows = [usage(tenant="=1+1", gpu_ns=1000)]
    site.ledger = tmp_path / "other"
    site.rows(rows, [capacity_of(rows)])
    site.run(*SINCE, "--csv", str(tmp_path / "a.csv"))
    lines = (tmp_path / "a.csv").read_text().splitlines()
    assert lines[1].startswith("'=1+1,1000,0.000000001,")
    assert lines[-1].startswith("(total),1000,0.000000001,")


def test_the_page_has_all_accounts_and_no_markup_of_clients(site: CostSite, tmp_path: Path) -> None:
    rows = [usage(tenant="<script>", gpu_ns=HOUR_NS, requests=1)]
    site.ledger = tmp_path / "other"
    site.rows(rows, [capacity_of(rows)])
    site.run(*SINCE, "--html", str(tmp_path / "a.html"))
    page = (tmp_path / "a.html").read_text()
    body = page[page.index("<body>") : page.index('<script type="application/json"')]
    assert "&lt;script&gt;" in body
    assert "<script" not in body


@pytest.mark.parametrize(
    ("options", "key", "expected"),
    [
        pytest.param(["--by", "colour"], "--by", "tenant", id="no such account"),
        pytest.param(["--by", "label:"], "--by", "label:NAME", id="a label without a name"),
        pytest.param(["--timezone", "Europe/Berln"], "--timezone", "Europe/Berlin", id="zone"),
        pytest.param(["--timezone", "../etc/passwd"], "--timezone", "a time zone", id="no zone"),
        pytest.param(["--since", "2026-13"], "--since", "2026-01", id="no month"),
        pytest.param(["--since", "soon"], "--since", "30d", id="no time"),
        pytest.param(["--since", "9999-12-31"], "--since", "in the past", id="to come"),
        pytest.param(["--since", "0001-01-01T00:00+14:00"], "--since", "30d", id="too long ago"),
        pytest.param(
            ["--since", "2026-11-05", "--until", "2026-11-04"], "--until", "after", id="order"
        ),
        pytest.param(["--spread", "evenly"], "--spread", "none, use", id="no such spread"),
        pytest.param(["--spread", "reservation"], "--spread", "none or use", id="none reserved"),
        pytest.param(["--csv", "-", "--json"], "--csv", "a file", id="two on stdout"),
        pytest.param(["--html", "/no/such/a.html"], "--html", "a directory", id="no place"),
    ],
)
def test_bad_options_are_named(site: CostSite, options: list[str], key: str, expected: str) -> None:
    error = site.refused(*options)
    assert error.key == key
    assert expected in error.expected


def test_nothing_is_printed_where_two_things_would_go_to_stdout(
    site: CostSite, capfd: pytest.CaptureFixture[str]
) -> None:
    site.refused("--csv", "-", "--json")
    assert capfd.readouterr().out == ""


def test_a_zone_of_the_configuration_that_is_none_is_named_with_its_line(site: CostSite) -> None:
    site.config('[billing]\ntimezone = "Mars"\n')
    error = site.refused()
    assert error.key == "billing.timezone"
    assert str(error.place).endswith("mileage.toml:2")


def test_a_ledger_without_gpu_time_exits_with_3_and_says_what_is_missing(tmp_path: Path) -> None:
    site = CostSite(tmp_path)
    site.rows([], [])
    document = site.document(code=3)
    assert document["gpu_ns_total"] == 0
    assert "mileage serve" in document["warnings"][0]
    assert "(idle)" in site.run(code=3).stdout


def test_a_directory_without_a_ledger_is_named(tmp_path: Path) -> None:
    assert CostSite(tmp_path).refused().key == "--ledger"


def test_a_ledger_of_an_older_schema_says_what_to_do(site: CostSite) -> None:
    with closing(sqlite3.connect(site.ledger / DATABASE_NAME)) as connection:
        connection.execute("DELETE FROM schema_version WHERE version > 2")
        connection.commit()
    with pytest.raises(LedgerError, match="run mileage serve on it once"):
        site.run()


def test_what_is_not_booked_yet_is_said(site: CostSite, tmp_path: Path) -> None:
    rows = [usage(gpu_ns=5)]
    site.ledger = tmp_path / "other"
    site.rows(rows, [capacity_of(rows)], settled_until_utc_s=START_S + 86_400 - 300)
    document = site.document(*SINCE)
    assert document["window"]["provisional"]
    assert "the last 5 minutes may still change" in document["warnings"][0]


def test_each_request_has_what_the_ledger_attributed_to_it(tmp_path: Path) -> None:
    site = CostSite(tmp_path)
    site.config(PRICE)
    rows = [usage(tenant="a", requests=3, prompt_tokens=12, gpu_ns=700)]
    site.rows(rows, [capacity_of(rows, idle_ns=300)])
    with closing(sqlite3.connect(site.ledger / DATABASE_NAME)) as connection:
        for number, gpu_ns in ((7, 400), (8, 250)):
            connection.execute(
                "INSERT INTO requests (id, tenant, model, endpoint, stream, arrived_at_utc_ns, "
                "outcome, attempts, replica, dispatched_s, finished_s, prompt_tokens, "
                "attributed_ns, booked) "
                "VALUES (?, 'a', 'm', 'chat', 1, ?, 'ok', 1, 'r0', 0.1, 2.0, 5, ?, 2)",
                (number, START_S * 1_000_000_000 + number, gpu_ns),
            )
        connection.execute(
            "INSERT INTO engine_requests VALUES (7, 'r0', 1, 0.25, 0.1, 1.0, 5, 0, 3, 0, 1)"
        )
        connection.commit()
    document = site.document(*SINCE, "--by", "request")
    accounts = {account["name"]: account for account in document["accounts"]}
    assert {name: account["gpu_ns"] for name, account in accounts.items()} == {
        "7": 400,
        "8": 250,
        "(requests not on record)": 50,
    }
    assert accounts["7"]["prompt_tokens"] == 5
    assert accounts["7"]["engine_queue_s"] == Decimal("0.25")
    assert accounts["8"]["engine_queue_s"] is None
    assert accounts["(requests not on record)"]["requests"] == 1
    assert document["gpu_ns_total"] == 1000
    page = tmp_path / "a.html"
    site.run(*SINCE, "--by", "request", "--top", "1", "--html", str(page))
    assert "(others)" in page.read_text()
