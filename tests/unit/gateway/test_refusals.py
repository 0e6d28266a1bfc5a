"""What clients are told of why a model could not be loaded."""

from __future__ import annotations

import pytest

from mileage.core.actions import Reject
from mileage.gateway.refusals import rejection


@pytest.mark.parametrize(
    ("detail", "told"),
    [
        pytest.param("/data/x.gguf: is empty", "x.gguf: is empty", id="a path"),
        pytest.param(
            "404: No adapter found for '/adapters/of acme/sums'",
            "404: No adapter found for 'of acme/sums'",
            id="one with a space",
        ),
        pytest.param("~/models/x.gguf is no file", "x.gguf is no file", id="a home directory"),
        pytest.param(
            "http://10.0.0.5:8000/v1: cannot be reached",
            "http://10.0.0.5:8000/v1: cannot be reached",
            id="a URL is no path",
        ),
        pytest.param("rank 16 and/or 3/4 / 2", "rank 16 and/or 3/4 / 2", id="nor is a ratio"),
        pytest.param("hf:o/r/x.gguf: 404", "hf:o/r/x.gguf: 404", id="nor is a hub id"),
    ],
)
def test_where_files_are_on_our_machines_is_nothing_for_clients(detail: str, told: str) -> None:
    refusal = rejection(Reject(1, "load_failed", 5.0, detail), "m", None)
    assert refusal.message == f"the model 'm' could not be loaded: {told}"
