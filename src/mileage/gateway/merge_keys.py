"""Merge keys: which requests are the same, whatever their JSON looks like, and which fit one call.

Two requests have the same merge key where an engine owes them the same answer: the order of
fields, white space, escapes, the form of a number, nulls and defaults that are spelt out make no
difference. What may make one does: the order inside of schemas and of tools' definitions, which
engines put into the prompt as they come, and every field that is not known here.

Only what is deterministic (temperature 0, embeddings), or asked for, gets one. Some requests never
do, whatever they ask for: those that leave something behind (`store`, `background`), that go on
with something left behind, or whose tools the engine runs by itself.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from mileage.core.request import Endpoint
from mileage.gateway.bodies import Body
from mileage.gateway.refusals import Refusal
from mileage.policy.merging import MergingConfig

__all__ = ["NO_KEYS", "MergeKeys", "merge_keys"]

_BODY_BYTES_MAX = 1024 * 1024
"""A larger body takes longer to compare than others should wait, and is hardly sent twice."""
_BATCHED_BYTES_MAX = 64 * 1024
"""A larger body is a call by itself: company would save it nothing."""
_INTEGERS_MAX = 2**53

_DEFAULTS: dict[str, Any] = {
    # Only what every engine has as its default: vLLM takes temperature, top_p and others from the
    # model's own generation_config.json.
    "echo": False,
    "encoding_format": "float",
    "frequency_penalty": 0,
    "logprobs": False,
    "n": 1,
    "presence_penalty": 0,
    "stream": False,
}
_EFFECTS = (
    "background",
    "container",
    "conversation",
    "kv_transfer_params",
    "mcp_servers",
    "previous_response_id",
    "store",
    "web_search_options",
)
_CLIENT_TOOLS = ("function", "custom")
_TURNS = ("messages", "input")
_LISTED = ("input", "prompt")

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode
_NO_KEY_ERRORS = (msgspec.MsgspecError, RecursionError, ValueError, OverflowError)


class MergeKeys(NamedTuple):
    """As in Request."""

    merge: str | None
    batch: str | None
    batch_items: int


NO_KEYS = MergeKeys(None, None, 1)


def merge_keys(
    endpoint: Endpoint,
    raw: bytes,
    body: Body,
    config: MergingConfig,
    model: str,
    asked: bytes | None = None,
    variant: bytes = b"",
) -> MergeKeys:
    """The keys of a request for `model`, the engine's name of it.

    `asked` is its `x-mileage-merge`: yes, no, or None without one; Refusal (400) for anything else.
    `variant` is what else makes the answer another one, or makes it wait in another way.
    """
    deterministic = body.deterministic
    if asked is not None:
        wish = asked.strip().lower()
        if wish not in (b"yes", b"no"):
            message = "'x-mileage-merge' must be 'yes' or 'no'"
            raise Refusal(400, message, param="x-mileage-merge")
        if wish == b"no":
            return NO_KEYS
        deterministic = True
    batched = endpoint == "embeddings" and config.batch_enabled and len(raw) <= _BATCHED_BYTES_MAX
    merged = deterministic and config.enabled and len(raw) <= _BODY_BYTES_MAX
    if not (merged or batched):
        return NO_KEYS
    try:
        fields = _decode(raw)
        if _has_effects(endpoint, fields):
            return NO_KEYS
        canonical = _canonical(fields)
        canonical["model"] = model
        about = [endpoint, variant.decode("latin-1")]
        merge = _hash([about, canonical]) if merged else None
        kind, items = _items(canonical) if batched else (None, 1)
        batch = None
        if kind is not None:
            del canonical["input"]
            batch = _hash([about, kind, canonical])
        return MergeKeys(merge, batch, items)
    except _NO_KEY_ERRORS:
        return NO_KEYS  # odd, but not for us to judge


def _hash(value: object) -> str:
    return blake2b(_encode(value), digest_size=16).hexdigest()


def _has_effects(endpoint: Endpoint, fields: dict[str, Any]) -> bool:
    """The request does more than to have an answer made."""
    if any(fields.get(name) for name in _EFFECTS):
        return True
    if endpoint == "responses" and fields.get("store") is not False:
        return True  # this API's default is to store
    tools = fields.get("tools")
    if not isinstance(tools, list):
        return False
    # Anthropic's own tools have a type with a date; those of clients have none.
    default = "custom" if endpoint == "messages" else None
    return any(
        not isinstance(tool, dict) or tool.get("type", default) not in _CLIENT_TOOLS
        for tool in tools
    )


def _canonical(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields in order of their names, without nulls and defaults, in one form."""
    found: dict[str, Any] = {}
    for name in sorted(fields):
        value = fields[name]
        if isinstance(value, float) and value.is_integer() and abs(value) < _INTEGERS_MAX:
            value = int(value)
        elif name == "stream_options" and isinstance(value, dict):
            value = {key: value[key] for key in sorted(value) if value[key] not in (None, False)}
            value = value or None
        elif name in _LISTED and _is_one_item(value):
            value = [value]
        elif name in _TURNS and isinstance(value, list):
            value = [_turn(turn) for turn in value]
        if value is None:
            continue
        default = _DEFAULTS.get(name)
        if type(value) is type(default) and value == default:
            continue
        found[name] = value
    return found


def _turn(turn: Any) -> Any:
    """A message with its own fields, and those of its parts, in order; the values as they are."""
    if not isinstance(turn, dict):
        return turn
    turn = dict(sorted(turn.items()))
    content = turn.get("content")
    if isinstance(content, list):
        turn["content"] = [
            dict(sorted(part.items())) if isinstance(part, dict) else part for part in content
        ]
    return turn


def _is_one_item(value: Any) -> bool:
    """A text, or a list of tokens: the same as a list of only that."""
    return isinstance(value, str) or (
        isinstance(value, list) and bool(value) and isinstance(value[0], int)
    )


def _items(fields: dict[str, Any]) -> tuple[str | None, int]:
    """Kind and number of the items to embed; no kind where they cannot be put beside others."""
    items = fields.get("input")
    if not isinstance(items, list) or not items:
        return None, 1
    if all(isinstance(item, str) for item in items):
        return "text", len(items)
    if all(isinstance(item, list) for item in items):
        return "tokens", len(items)
    return None, 1
