"""fetch(): what is refused before a connection is made. (tests/integration/wire: the rest.)"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mileage.core.errors import EngineError
from mileage.wire.fetch import FetchError, FetchResponse, fetch


def failure(url: str, headers: Sequence[tuple[str, str]] = ()) -> FetchError:
    """The error that fetching the URL raises."""
    with pytest.raises(FetchError) as caught:
        asyncio.run(fetch(url, headers=headers, timeout_s=1))
    return caught.value


def test_a_url_that_cannot_be_requested_is_named_without_its_password() -> None:
    error = failure("ftp://user:secret@host/x?token=secret")
    assert isinstance(error, EngineError)
    assert (error.kind, error.engine) == ("request", "ftp://host/x")
    assert "secret" not in str(error)


@given(st.text(alphabet=st.characters(exclude_characters=":"), max_size=30))
def test_text_that_is_no_url_is_refused(text: str) -> None:
    assert failure(text).kind == "request"


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(("authorization", "Bearer x\r\nx: y"), id="line break in a value"),
        pytest.param(("authorization", "Bearer x\n"), id="line break at its end"),
        pytest.param(("a b", "x"), id="space in a name"),
        pytest.param(("", "x"), id="empty name"),
        pytest.param(("a:", "x"), id="colon in a name"),
        pytest.param(("a", "\u20ac"), id="no latin-1"),
        pytest.param(("a", "\x00"), id="NUL"),
    ],
)
def test_a_header_that_would_break_the_request_is_refused(header: tuple[str, str]) -> None:
    error = failure("http://127.0.0.1:9/", [header])
    assert error.kind == "request"
    assert "Bearer" not in str(error)


def test_response_headers_are_found_by_their_lower_case_name() -> None:
    response = FetchResponse(200, (("a", "1"), ("a", "2")), b"")
    assert (response.header("a"), response.header("b")) == ("1", None)
