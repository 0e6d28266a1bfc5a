"""Commands that ask a gateway's admin plane: what they say where it does not let them in."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mileage.cli.engine import engine
from mileage.core.errors import ConfigError, MileageError

TOKEN = "the-token-of-another-gateway"
EMPTY = {"/api/v1/adapters": b'{"adapters":[],"replicas":[]}', "/api/v1/models": b'{"models":[]}'}


@pytest.fixture
def plane() -> Iterator[str]:
    """An admin plane without adapters and models, which knows one token."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.headers["authorization"] == "Bearer the-right-token-of-this-one"
            body = EMPTY[self.path] if known else b"{}"
            self.send_response(200 if known else 401)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("words", [("models",), ("lora", "list")], ids=" ".join)
def test_another_token_is_told_with_where_it_is_from(
    plane: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(TOKEN)
    asked = [*words, "--admin", plane, "--token-file", str(tmp_path / "token")]
    error = CliRunner(env={"MILEAGE_ADMIN_TOKEN": None}).invoke(engine, asked).exception
    assert isinstance(error, MileageError), error
    assert f"takes another admin token than that of {tmp_path}/token (401)" in str(error)
    assert TOKEN not in str(error)


def test_without_a_token_it_is_told_where_one_may_come_from(plane: str, tmp_path: Path) -> None:
    runner = CliRunner(env={"MILEAGE_ADMIN_TOKEN": None, "XDG_STATE_HOME": str(tmp_path)})
    error = runner.invoke(engine, ["models", "--admin", plane]).exception
    assert isinstance(error, ConfigError), error
    assert "this user has started no gateway here; or set MILEAGE_ADMIN_TOKEN" in str(error)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("models",), "No model of this gateway can sleep"),
        (("lora", "list"), "This gateway has no adapters"),
    ],
)
def test_what_is_not_there_is_said_in_words(plane: str, words: tuple[str, ...], said: str) -> None:
    runner = CliRunner(env={"MILEAGE_ADMIN_TOKEN": "the-right-token-of-this-one"})
    done = runner.invoke(engine, [*words, "--admin", plane])
    assert done.exit_code == 0, done.exception
    assert done.stdout.startswith(said)
    assert len(done.stdout.splitlines()) == 1
