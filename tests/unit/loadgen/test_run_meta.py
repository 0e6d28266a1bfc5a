"""RunMeta: a command line that is kept has no secret in it."""

from __future__ import annotations

import pytest

from mileage.loadgen.run_meta import without_secrets


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (["bench", "http://u:p@h:1/v1?k=s"], ["bench", "http://h:1/v1"]),
        (["--api-key", "sk-1", "-x"], ["--api-key", "...", "-x"]),
        (["--api-key=sk-1"], ["--api-key=..."]),
        (["--tenant-key", "acme=sk-1"], ["--tenant-key", "..."]),
        (["--admin-token", "t"], ["--admin-token", "..."]),
        (["--password=p=q"], ["--password=..."]),
        (["--api-key-env", "MY_KEY"], ["--api-key-env", "MY_KEY"]),
        (["--prompt-tokens", "512"], ["--prompt-tokens", "512"]),
        (["--header", "Authorization: Bearer x"], ["--header", "Authorization: ..."]),
        (["--header=X-Api-Key: x"], ["--header=X-Api-Key: ..."]),
        (["-H", "cookie: a=b"], ["-H", "cookie: ..."]),
        (["--header", "x-team: red"], ["--header", "x-team: red"]),
        (["--metrics-url=https://u:p@h/metrics"], ["--metrics-url=https://h/metrics"]),
        ([], []),
    ],
)
def test_nothing_secret_is_kept(given: list[str], kept: list[str]) -> None:
    assert without_secrets(given) == tuple(kept)
