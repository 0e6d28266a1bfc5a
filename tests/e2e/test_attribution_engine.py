"""The embedded engine, two tenants: what each pays in a mix is as what it costs alone.

The two differ moderately. Of a tenant that only has prompts and one that only has answers a mix
does change the proportion: answers get cheaper where they share steps, and prompts do not.
"""

from __future__ import annotations

import json
import random
import string
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from mileage.gateway.keys import key_hash, new_key
from tests.support.gateway import Gateway, run_mileage, wait_until

pytestmark = pytest.mark.heavy

MODEL = "smollm2"
ENGINE = ("--threads", "1", "--slots", "4", "--context-tokens", "4096")
TENANTS = ("reader-alone", "writer-alone", "reader-mixed", "writer-mixed", "warm-up")
KEYS = {tenant: new_key() for tenant in TENANTS}
ROUNDS = 3
CALLS = 3
STREAMS = 2
AGREE_RATIO = 0.10
SETTLED_S = 90.0
ENGINE_S = 180.0
"""Longer than its model takes to be extracted and loaded."""

CONFIG = """
[attribution]
window_s = 5
""" + "".join(f'[tenants.{name}]\nkey_hashes = ["{key_hash(key)}"]\n' for name, key in KEYS.items())

Call = tuple[str, int, int]
"""Tenant, words of the prompt, tokens of the answer."""


def ask(gateway: Gateway, call: Call, dice: random.Random) -> None:
    """A streamed answer of exactly so many tokens; no two prompts begin alike."""
    tenant, words, tokens = call
    prompt = " ".join("".join(dice.choices(string.ascii_lowercase, k=4)) for _ in range(words))
    body = {
        "model": MODEL,
        "prompt": prompt,
        "max_tokens": tokens,
        "stream": True,
        "ignore_eos": True,
    }
    headers = {"authorization": f"Bearer {KEYS[tenant]}"}
    with httpx.stream(
        "POST", f"{gateway.url}/completions", json=body, headers=headers, timeout=ENGINE_S
    ) as answer:
        text = "".join(answer.iter_text())
    assert answer.status_code == 200, text
    assert text.rstrip().endswith("[DONE]"), text[-200:]


def side_by_side(gateway: Gateway, kinds: list[Call], seed: int) -> None:
    """`STREAMS` clients of each kind, each with `CALLS` calls one after the other."""

    def client(number: int, call: Call) -> None:
        dice = random.Random(f"{seed} {number} {call[0]}")
        for _ in range(CALLS):
            ask(gateway, call, dice)

    with ThreadPoolExecutor(STREAMS * len(kinds)) as pool:
        started = [pool.submit(client, number, call) for call in kinds for number in range(STREAMS)]
        for each in started:
            each.result()


def measured(directory: Path) -> dict[str, int]:
    """GPU time of each tenant, alone and in the mix, by the bill."""
    directory.mkdir()
    with Gateway(directory, *ENGINE, config=CONFIG, start_s=ENGINE_S) as gateway:
        side_by_side(gateway, [("warm-up", 30, 4), ("warm-up", 10, 24)], 0)
        for number in range(1, ROUNDS + 1):
            # In turn, so that a machine that is slower for a while is slower for all of them.
            side_by_side(gateway, [("reader-alone", 30, 12)], number)
            side_by_side(gateway, [("writer-alone", 10, 24)], number)
            side_by_side(gateway, [("reader-mixed", 30, 12), ("writer-mixed", 10, 24)], number)
        count = (2 + 4 * ROUNDS) * STREAMS * CALLS

        def gpu_ns() -> dict[str, int]:
            arguments = ("cost", "--by", "tenant", "--since", "1h", "--json")
            printed = run_mileage(*arguments, "--ledger", gateway.ledger, state=gateway.state)
            if printed.returncode:
                return {}
            document = json.loads(printed.stdout)
            accounts = document["accounts"]
            total = sum(each["gpu_ns"] for each in accounts) + document["idle_gpu_ns"]
            assert total == document["gpu_ns_total"]
            if sum(each["requests"] for each in accounts) < count:
                return {}
            return {each["name"]: each["gpu_ns"] for each in accounts}

        found: dict[str, int] = {}

        def settled() -> bool:
            nonlocal found
            found = gpu_ns()
            return bool(found)

        wait_until(settled, "all requests are on the bill", SETTLED_S)
    return found


def worst_error_ratio(found: dict[str, int]) -> float:
    """By how much a tenant's share of the mix differs from its share of what both cost alone."""
    errors = []
    for kind in ("reader", "writer"):
        alone, mixed = (
            found[f"{kind}-{how}"] / (found[f"reader-{how}"] + found[f"writer-{how}"])
            for how in ("alone", "mixed")
        )
        errors.append(abs(mixed / alone - 1.0))
    return max(errors)


def test_shares_of_a_mix_agree_with_what_each_costs_alone(tmp_path: Path) -> None:
    found = measured(tmp_path / "first")
    if worst_error_ratio(found) > AGREE_RATIO:
        # One of ten runs misses on a machine that others use, too: it is asked once more.
        found = measured(tmp_path / "second")
    assert worst_error_ratio(found) <= AGREE_RATIO, found
    # Side by side they share steps, and so what each step costs whatever is in it.
    together = found["reader-mixed"] + found["writer-mixed"]
    assert together < found["reader-alone"] + found["writer-alone"], found
