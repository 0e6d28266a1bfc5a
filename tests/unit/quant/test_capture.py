"""A capture's file: exact, the same bytes twice, and anything else is refused."""

from __future__ import annotations

import msgspec
import pytest

from mileage.core.errors import ConfigError
from mileage.quant.capture import Capture, capture_bytes, read_capture
from tests.support.toy_capture import toy_capture


def _capture() -> Capture:
    return toy_capture(head_dim=8, window_tokens=(5, 3), seed=1)


FACTS = _capture().facts


def test_a_capture_is_read_back_exactly() -> None:
    capture = _capture()

    found = read_capture(capture_bytes(capture))

    assert found.facts == FACTS
    for one, two in zip(found.layers, capture.layers, strict=True):
        assert (one.q.tobytes(), one.k.tobytes(), one.v.tobytes()) == (
            two.q.tobytes(),
            two.k.tobytes(),
            two.v.tobytes(),
        )


def test_the_same_capture_has_the_same_bytes() -> None:
    assert capture_bytes(_capture()) == capture_bytes(_capture())


def test_windows_are_apart() -> None:
    windows = list(_capture().windows(1))

    assert [len(w.q) for w in windows] == [5, 3]
    assert (windows[1].k == _capture().layers[1].k[5:]).all()


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"not a capture", id="text"),
        pytest.param(capture_bytes(_capture())[:500], id="cut short"),
        pytest.param(b"PK\x03\x04" + bytes(200), id="a damaged archive"),
    ],
)
def test_what_is_no_capture_is_refused(content: bytes) -> None:
    with pytest.raises(ConfigError, match=r"--capture: got 'x\.npz', expected a capture"):
        read_capture(content, name="x.npz")


def test_layers_that_do_not_fit_the_facts_are_refused() -> None:
    capture = _capture()
    facts = msgspec.structs.replace(FACTS, window_tokens=(5, 4))
    content = capture_bytes(Capture(facts=facts, layers=capture.layers))

    with pytest.raises(ConfigError, match=r"layer 0 of shapes \(9, 4, 8\)"):
        read_capture(content)
