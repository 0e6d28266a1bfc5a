"""The official OpenAI client, unchanged, against the embedded engine and its real model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.gateway import Gateway
from tests.support.openai_suite import OpenAiSuite
from tests.support.served import Served

CONTEXT_TOKENS = 2048


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    # One thread: two on a loaded machine of two cores mostly wait for each other.
    arguments = ("--threads", "1", "--context-tokens", str(CONTEXT_TOKENS))
    with Gateway(tmp_path_factory.mktemp("embedded"), *arguments, start_s=300.0) as gateway:
        yield Served(gateway, "smollm2", context_tokens=CONTEXT_TOKENS, timeout_s=120.0)


class TestEmbedded(OpenAiSuite):
    """All of it, and in the end the ledger of all of it."""

    def test_ledger_has_every_request_once(self, served: Served) -> None:
        served.check_ledger()
