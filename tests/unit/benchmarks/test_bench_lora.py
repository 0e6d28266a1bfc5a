"""The benchmark of adapters: its arms are what they say, and the keeper is between LRU and MIN."""

from __future__ import annotations

import msgspec
import pytest

from benchmarks import lora
from benchmarks.support.adapter_world import Use, least_recent, optimum


def test_lru_and_the_optimum_by_hand() -> None:
    sequence: list[Use] = [(float(n), name) for n, name in enumerate("abcabc")]
    assert least_recent(sequence, 2).hits == 0
    assert optimum(sequence, 2).hits == 2, "a stays until it comes again, then c does"
    assert optimum(sequence, 3).hits == least_recent(sequence, 3).hits == 3


def test_the_keeper_is_nearer_to_the_optimum_than_lru(capsys: pytest.CaptureFixture[str]) -> None:
    assert lora.main(["--json", "--requests", "400", "--live", "0"]) in (0, 1)
    figures = msgspec.json.decode(capsys.readouterr().out)
    assert figures["lru_hit_ratio"] < figures["hit_ratio"] < figures["optimum_hit_ratio"]
    assert figures["optimum_loads"] < figures["loads"]
