"""An engine's names for its requests tell the gateway's, whatever it put around them."""

from __future__ import annotations

import pytest

from mileage.core.request_name import (
    CLIENT_NAME_MAX,
    NamedRequest,
    gateway_tag,
    read_request_name,
    request_name,
)

TAG = gateway_tag("0123456789abcdef0123456789abcdef")
ID = (1 << 57) + 5


@pytest.mark.parametrize(
    "form",
    [
        pytest.param("{}", id="as it is"),
        pytest.param("chatcmpl-{}", id="a chat"),
        pytest.param("chatcmpl-{}-1f2e3d4c", id="with random digits behind it"),
        pytest.param("cmpl-{}-0-1f2e3d4c", id="the first prompt of a batch"),
        pytest.param("1_chatcmpl-{}-1f2e3d4c", id="the second of several choices"),
        pytest.param("embd-{}-12-deadbeef", id="one of many embeddings"),
    ],
)
@pytest.mark.parametrize("client", [b"", b"from-the-client", b"req-1.00000000", b"\xe4 name"])
def test_a_name_is_found_in_an_engines(form: str, client: bytes) -> None:
    name = request_name(ID, TAG, client).decode("latin-1")
    assert read_request_name(form.format(name)) == NamedRequest("01234567", ID)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("chatcmpl-8f14e45fceea167a5a36dedd4bea2543", id="the engine's own"),
        pytest.param("chatcmpl-req-18a3f", id="a gateway's without a tag"),
        pytest.param("chatcmpl-req-18a3f.1234", id="too short a tag"),
        pytest.param("chatcmpl-xreq-18a3f.01234567", id="part of a word"),
        pytest.param("chatcmpl-req-18a3f.0123456789", id="too long a tag"),
        pytest.param("", id="none"),
    ],
)
def test_what_is_no_gateways_is_none(name: str) -> None:
    assert read_request_name(name) is None


def test_a_long_name_of_a_client_is_cut() -> None:
    name = request_name(1, TAG, b"x" * 5000)
    assert len(name) < CLIENT_NAME_MAX + 40
    assert read_request_name(name.decode()) == NamedRequest(TAG, 1)
