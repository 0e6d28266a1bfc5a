"""A real gateway counts prompts by a tokenizer before it lets them in, and says how it did."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.engine import ScriptedEngine
from tests.support.gateway import Gateway, run_mileage, wait_until
from tests.support.local_http import LOCAL
from tests.support.tokenizer_files import words_tokenizer

CONFIG = """
[tokenizer]
wait_max_s = 30.0
[tokenizer.models]
toy = "{place}"
[[engines]]
kind = "vllm"
name = "a"
url = "{url}"
health_interval_s = 0.2
"""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    directory = tmp_path_factory.mktemp("counting")
    place = words_tokenizer(directory / "model" / "tokenizer.json").parent
    with ScriptedEngine() as engine:
        config = CONFIG.format(place=place, url=engine.url)
        with Gateway(directory, config=config) as made:
            yield made


def ask(gateway: Gateway, words: int) -> None:
    body: dict[str, Any] = {
        "model": "toy",
        "messages": [{"role": "user", "content": "extraordinary " * words}],
    }
    answer = httpx.post(f"{gateway.url}/chat/completions", json=body, **LOCAL)
    assert answer.status_code == 200, answer.text


def test_long_prompts_are_counted_and_short_ones_estimated(gateway: Gateway) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda words: ask(gateway, words), [1, 2, *[500] * 6]))
    found: dict[str, float] = {}

    def counted() -> bool:
        head = "mileage_prompt_counts_total{"
        page = httpx.get(f"{gateway.listening.admin_url}/metrics", **LOCAL)
        for line in page.text.splitlines():
            if line.startswith(head):
                found[line.split('how="')[1].split('"')[0]] = float(line.split()[-1])
        return sum(found.values()) == 8

    wait_until(counted, "the metric has all of them")
    assert found == {"short": 2, "counted": 6}
    rows = gateway.requests(8)
    assert {row.outcome for row in rows} == {"ok"}


def test_a_tokenizer_that_cannot_be_read_keeps_it_from_starting(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{")
    path = tmp_path / "mileage.toml"
    path.write_text(CONFIG.format(place=tmp_path, url="http://127.0.0.1:9"))
    ended = run_mileage("serve", "--config", str(path), "--port", "0", state=tmp_path)
    assert ended.returncode == 2, ended.stderr
    assert "tokenizer.models.toy" in ended.stderr
    assert f"{path}:5" in ended.stderr
