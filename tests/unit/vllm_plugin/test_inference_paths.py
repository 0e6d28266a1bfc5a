"""Which calls `waiting_max` bounds: those known, and those that vLLM counts as its load."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from mileage.vllm_plugin.inference_paths import INFERENCE_POSTS, inference_posts


def load_aware_call(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """As vLLM's."""

    @functools.wraps(call)
    def wrapper(request: Any) -> Any:
        if not getattr(request.app.state, "enable_server_load_tracking", False):
            return call(request)
        return None

    return wrapper


def with_cancellation(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(call)
    def wrapper(request: Any) -> Any:
        return call(request)

    return wrapper


def plain(request: Any) -> Any:
    return request


def itself(request: Any) -> Any:
    return request


itself.__wrapped__ = itself  # type: ignore[attr-defined]
COUNTED = with_cancellation(load_aware_call(plain))


def found(path: str, endpoint: Any, *methods: str) -> frozenset[str]:
    route = SimpleNamespace(path=path, endpoint=endpoint, methods=set(methods))
    return inference_posts(SimpleNamespace(routes=[SimpleNamespace(), route])) - INFERENCE_POSTS


@pytest.mark.parametrize(
    ("path", "endpoint", "methods", "bounded"),
    [
        pytest.param("/v9/new", COUNTED, ("POST",), True, id="a new one that is counted"),
        pytest.param("/v9/new", COUNTED, ("GET",), False, id="asked by GET"),
        pytest.param("/v9/new", with_cancellation(plain), ("POST",), False, id="not counted"),
        pytest.param("/v9/{id}/cancel", COUNTED, ("POST",), False, id="of one answer"),
        pytest.param("/v1/messages/count_tokens", COUNTED, ("POST",), False, id="tokens only"),
        pytest.param("/v9/new", itself, ("POST",), False, id="wraps itself"),
        pytest.param("/v9/new", None, ("POST",), False, id="no function"),
        pytest.param(None, COUNTED, ("POST",), False, id="no path"),
    ],
)
def test_a_path_that_nobody_has_heard_of(
    path: str, endpoint: Any, methods: tuple[str, ...], bounded: bool
) -> None:
    assert found(path, endpoint, *methods) == ({path} if bounded else frozenset())


def test_what_has_no_routes_has_those_that_are_known() -> None:
    assert inference_posts(None) == INFERENCE_POSTS
    assert inference_posts(SimpleNamespace(routes=None)) == INFERENCE_POSTS
