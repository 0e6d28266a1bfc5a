"""A real vLLM tells a real gateway's ledger of its steps: shares sum to its busy time, exactly."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from mileage.ledger.account_name import WARM_UP
from mileage.ledger.engine_step import EngineStep
from mileage.storage.step_file import read_steps
from tests.support.gateway import Gateway, run_mileage, wait_until
from tests.support.vllm_server import CONTROL_TOKEN, PLUGIN, VllmServer, tiny_model

pytestmark = pytest.mark.heavy

REPLICA = "tiny-a"
MODEL = "tiny"
ANSWER_S = 300.0
SETTLED_S = 240.0
ARGUMENTS = (
    *("--load-format", "dummy", "--max-model-len", "1024", "--max-num-seqs", "8"),
    # Prompts come in chunks, and not all that are asked for at once fit: some are preempted.
    *("--max-num-batched-tokens", "128", "--block-size", "32", "--num-gpu-blocks-override", "40"),
    "--enable-prompt-tokens-details",
)
CONFIG = """
[attribution]
window_s = 5
[ledger]
directory = "{ledger}"
[[engines]]
kind = "vllm"
name = "{name}"
url = "{url}"
health_timeout_s = 120
"""


class Site:
    """An engine and a gateway beside one ledger."""

    def __init__(self, vllm: VllmServer, gateway: Gateway, ledger: Path) -> None:
        self.vllm, self.gateway, self.ledger = vllm, gateway, ledger

    def post(self, base: str, path: str, body: dict[str, Any]) -> Any:
        """A whole answer of the gateway, or of the engine behind its back."""
        whole = {"model": MODEL, "ignore_eos": True, "temperature": 0, **body}
        answer = httpx.post(f"{base}{path}", json=whole, timeout=ANSWER_S)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def ask(self, path: str, body: dict[str, Any]) -> Any:
        return self.post(self.gateway.url, path, body)

    def steps(self) -> list[EngineStep]:
        """All that the engine told so far."""
        paths = sorted((self.ledger / "steps").glob("*.steps"))
        return [step for path in paths for step in read_steps(path)]

    def requests(self) -> list[dict[str, Any]]:
        """The latest in the ledger, as `mileage requests` has them."""
        printed = run_mileage(
            *("requests", "--last", "100", "--json", "--ledger", str(self.ledger)),
            state=self.gateway.state,
        )
        assert printed.returncode == 0, printed.stderr
        found: list[dict[str, Any]] = json.loads(printed.stdout)["requests"]
        return found

    def cost(self) -> dict[str, Any]:
        """The bill, by tenant; the parts sum to the capacity."""
        printed = run_mileage(
            *("cost", "--by", "tenant", "--since", "1h", "--json", "--ledger", str(self.ledger)),
            state=self.gateway.state,
        )
        assert printed.returncode == 0, printed.stderr
        document: dict[str, Any] = json.loads(printed.stdout)
        return document


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, vllm_python: Path) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("metering")
    ledger = directory / "ledger"
    told = {"MILEAGE_STEPS_DIR": str(ledger / "steps"), "MILEAGE_REPLICA": REPLICA}
    model = tiny_model(vllm_python, directory)
    environment = {**PLUGIN, **told}
    with VllmServer(
        vllm_python, model, directory, *ARGUMENTS, name=MODEL, environment=environment
    ) as vllm:
        (directory / "gateway").mkdir()
        config = CONFIG.format(ledger=ledger, name=REPLICA, url=vllm.url)
        with Gateway(directory / "gateway", config=config) as gateway:
            made = Site(vllm, gateway, ledger)
            made.ask("/completions", {"prompt": "1", "max_tokens": 2})
            yield made


def given_ns(document: dict[str, Any]) -> int:
    """What requests have; with idle time and warm-up it is the whole."""
    accounts = {each["name"]: int(each["gpu_ns"]) for each in document["accounts"]}
    assert sum(accounts.values()) + document["idle_gpu_ns"] == document["gpu_ns_total"]
    return sum(accounts.values()) - accounts.get(WARM_UP, 0)


def words(count: int, first: int = 0) -> str:
    return " ".join(str(number) for number in range(first, first + count))


def sent(steps: list[EngineStep]) -> dict[int, Counter[str]]:
    """What each request had of the steps."""
    sums: dict[int, Counter[str]] = {}
    for step in steps:
        for use in step.uses:
            sums.setdefault(use.request_id, Counter()).update(
                prefill=use.prefill_tokens,
                decode=use.decode_tokens,
                recomputed=use.recomputed_tokens,
            )
    return sums


def test_its_steps_are_told_and_the_capability_says_so(site: Site) -> None:
    headers = {"authorization": f"Bearer {CONTROL_TOKEN}"}
    url = f"{site.vllm.url}/mileage/control"
    found = httpx.get(url, headers=headers, timeout=ANSWER_S).json()
    assert found["capabilities"]["metering"] is True


def test_shares_sum_to_the_busy_time_and_every_request_is_found(site: Site) -> None:
    shared = words(120)
    calls: list[tuple[str, dict[str, Any]]] = [
        ("/completions", {"prompt": f"{words(60, n * 100)}", "max_tokens": 150}) for n in range(6)
    ]
    calls += [
        ("/completions", {"prompt": "several", "max_tokens": 5, "n": 2, "temperature": 1}),
        ("/completions", {"prompt": ["a batch", "of two"], "max_tokens": 5}),
        ("/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}),
        ("/responses", {"input": "hi", "max_output_tokens": 5}),
    ]
    with ThreadPoolExecutor(len(calls)) as pool:
        for answer in [pool.submit(site.ask, *call) for call in calls]:
            answer.result()
    # One after the other: the second finds nearly all of its prompt in the prefix cache.
    repeated = [site.ask("/completions", {"prompt": shared, "max_tokens": 3}) for _ in range(2)]
    direct = {"prompt": "past the gateway", "max_tokens": 7}
    usage = site.post(f"{site.vllm.url}/v1", "/completions", direct)["usage"]
    count = 1 + len(calls) + len(repeated)
    rows = {row.id: row for row in site.gateway.requests(count)}
    settled: dict[str, Any] = {}

    def exact() -> bool:
        settled.update(site.cost())
        accounts = settled["accounts"]
        settled["steps_ns"] = sum(step.duration_ns for step in site.steps())
        shared_ns = given_ns(settled)
        told = sum(each["requests"] for each in accounts)
        return bool(told == count and shared_ns == settled["steps_ns"])

    wait_until(exact, "shares are the time of the steps, to the nanosecond", SETTLED_S)
    steps = site.steps()
    ended_ns = [step.started_at_utc_ns + step.duration_ns for step in steps]
    begun_ns = [step.started_at_utc_ns for step in steps]
    assert all(begun >= ended for ended, begun in zip(ended_ns, begun_ns[1:], strict=False))
    had = sent(steps)
    assert {number for number in had if number > 0} == set(rows)
    (other,) = (uses for number, uses in had.items() if number < 0)
    assert other["prefill"] == usage["prompt_tokens"]
    assert other["decode"] == usage["completion_tokens"] - 1
    names = {each["name"]: each["gpu_ns"] for each in settled["accounts"]}
    assert names["(no tenant)"] > 0
    for number, row in rows.items():
        assert row.prompt_tokens is not None
        assert row.output_tokens is not None
        uses = had[number]
        choices = 1
        if uses["decode"] != row.output_tokens - 1:
            choices = 2  # several answers: the first token of each is that of its prompt
        assert uses["decode"] == row.output_tokens - choices, row
        if choices == 1:
            computed = uses["prefill"] - uses["recomputed"]
            assert computed + (row.cached_tokens or 0) >= row.prompt_tokens, row
    again = [rows[number] for number in sorted(rows)[-2:]]
    cached = repeated[1]["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached > 0
    assert had[again[1].id]["prefill"] == (again[1].prompt_tokens or 0) - cached


def times_of(site: Site) -> dict[str, float]:
    """Seconds that vLLM itself has counted, of all requests so far."""
    page = httpx.get(f"{site.vllm.url}/metrics", timeout=ANSWER_S).text
    found = {}
    for kind in ("queue", "prefill", "decode"):
        head = f"vllm:request_{kind}_time_seconds_sum{{"
        (line,) = [each for each in page.splitlines() if each.startswith(head)]
        found[kind] = float(line.split()[-1])
    return found


def test_how_long_requests_waited_in_the_engine_is_in_the_ledger(site: Site) -> None:
    calls = [{"prompt": f"{words(20, n * 50)}", "max_tokens": 40} for n in range(16)]
    known = {row["id"] for row in site.requests()}
    before = times_of(site)
    with ThreadPoolExecutor(len(calls)) as pool:
        list(pool.map(lambda body: site.ask("/completions", body), calls))
    after = times_of(site)
    found: dict[int, dict[str, Any]] = {}

    def told() -> bool:
        found.update({row["id"]: row for row in site.requests() if row["id"] not in known})
        return len(found) == len(calls) and all(
            row["engine_queue_s"] is not None for row in found.values()
        )

    wait_until(told, "the ledger has each request's time in the queue", SETTLED_S)
    rows = list(found.values())
    for row in rows:
        assert row["engine_sequences"] == 1
        assert row["engine_prompt_tokens"] == row["prompt_tokens"]
        assert row["engine_output_tokens"] == row["output_tokens"] == 40
        inside = row["engine_queue_s"] + row["engine_prefill_s"] + row["engine_decode_s"]
        assert inside <= row["finished_s"]
    for kind, seconds in after.items():
        summed = sum(row[f"engine_{kind}_s"] for row in rows)
        assert summed == pytest.approx(seconds - before[kind], rel=1e-6, abs=1e-6)


def test_preempted_work_is_told_as_such(site: Site) -> None:
    again = sum(uses["recomputed"] for uses in sent(site.steps()).values())
    metrics = httpx.get(f"{site.vllm.url}/metrics", timeout=ANSWER_S).text
    (line,) = [
        each for each in metrics.splitlines() if each.startswith("vllm:num_preemptions_total{")
    ]
    # What it lost may all be in the prefix cache still.
    assert not again or float(line.split()[-1]) > 0


def test_a_killed_engine_leaves_steps_that_can_be_read(site: Site) -> None:
    told = len(site.steps())
    billed_ns = given_ns(site.cost())
    body = {"model": MODEL, "prompt": words(20), "max_tokens": 900, "ignore_eos": True}
    url = f"{site.gateway.url}/completions"
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(httpx.post, url, json=body, timeout=ANSWER_S) for _ in range(2)]
        wait_until(lambda: len(site.steps()) > told + 5, "it steps", ANSWER_S)
        family = psutil.Process(site.vllm.pid).children(recursive=True)
        for process in family:
            process.kill()
        psutil.wait_procs(family, timeout=60)
        for each in asked:
            each.exception()  # whether they were answered before does not matter
    assert len(site.steps()) > told + 5
    wait_until(
        lambda: given_ns(site.cost()) > billed_ns, "what it told before is billed", SETTLED_S
    )
