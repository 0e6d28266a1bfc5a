"""Batch: the items of several requests as one body for an engine, and its answer taken apart."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Raw

from mileage.control.gpu_meter import split
from mileage.gateway.call import Call
from mileage.gateway.usage import Usage, UsageObject

__all__ = ["ANSWER_BYTES_MAX", "Batch", "Part", "input_items"]

ANSWER_BYTES_MAX = 64 * 1024 * 1024
"""Of a batch's answer, which has to be whole to be taken apart."""

_LIST, _TEXT = b'["'
_ABSENT = Raw()
_NOT_READABLE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
_fields = msgspec.json.Decoder(dict[str, Raw])
_list = msgspec.json.Decoder(list[Raw])
_encode = msgspec.json.Encoder().encode


class _Answer(msgspec.Struct):
    data: list[dict[str, Raw]]
    id: Raw = _ABSENT
    object: Raw = _ABSENT
    created: Raw = _ABSENT
    model: Raw = _ABSENT
    usage: UsageObject | None = None


_answer = msgspec.json.Decoder(_Answer)
_index = msgspec.json.Decoder(int)


class Part(msgspec.Struct, frozen=True):
    """One request's own answer, and its part of the tokens that the engine counted."""

    body: bytes
    prompt_tokens: int | None


def input_items(value: Raw) -> list[Raw]:
    """The items of an `input`: a text, a list of texts, of tokens, or of lists of tokens."""
    if memoryview(value)[0] != _LIST:
        return [value]
    items = _list.decode(value)
    # The numbers of a flat list are the tokens of one item.
    return items if items and memoryview(items[0])[0] in (_LIST, _TEXT) else [value]


class Batch:
    """Embedding requests that differ in nothing but their input, in the order of their joining.

    A part is known by its place in that order; only those that somebody still waits for are sent.
    """

    def __init__(self, first: Call) -> None:
        self._calls = [first]

    def add(self, call: Call) -> int:
        """Take a request on; its part."""
        self._calls.append(call)
        return len(self._calls) - 1

    def call(self, part: int) -> Call:
        """The request of a part."""
        return self._calls[part]

    def body(self, parts: Sequence[int]) -> bytes:
        """One body with the items of these parts, in their order, under the engine's model."""
        fields = _fields.decode(self._calls[parts[0]].http.body)
        items = [item for part in parts for item in self._items(part)]
        fields["model"] = Raw(_encode(self._calls[0].request.model))
        fields["input"] = Raw(b"[%b]" % b",".join(map(bytes, items)))
        return _encode(fields)

    def split(self, body: bytes, parts: Sequence[int]) -> dict[int, Part] | None:
        """What of the engine's answer to `body(parts)` is each part's own, its indexes from 0.

        The engine counts the tokens of the whole call only: each part gets what its items have
        of its bytes, and all of them together get exactly what it counted. None: the answer is not
        what it should be.
        """
        try:
            answer = _answer.decode(body)
            ordered = _in_order(answer.data)
        except _NOT_READABLE:
            return None
        inputs = [self._items(part) for part in parts]
        if ordered is None or len(ordered) != sum(map(len, inputs)):
            return None
        counts = _counts(answer.usage, inputs)
        head = {
            name: value
            for name in ("id", "object", "created", "model")
            if bytes(value := getattr(answer, name))
        }
        found: dict[int, Part] = {}
        at = 0
        for part, items, tokens in zip(parts, inputs, counts, strict=True):
            own = [
                _encode({**item, "index": index})
                for index, item in enumerate(ordered[at : at + len(items)])
            ]
            at += len(items)
            fields = {**head, "data": Raw(b"[%b]" % b",".join(own))}
            if tokens is not None:
                fields["usage"] = Raw(b'{"prompt_tokens":%d,"total_tokens":%d}' % (tokens, tokens))
            found[part] = Part(_encode(fields), tokens)
        return found

    def _items(self, part: int) -> list[Raw]:
        return input_items(_fields.decode(self._calls[part].http.body)["input"])


def _in_order(data: list[dict[str, Raw]]) -> list[dict[str, Raw]] | None:
    """The items by their indexes, or as they came without any; None where one is missing."""
    indexes = [_index.decode(item["index"]) for item in data if "index" in item]
    if not indexes:
        return data
    if sorted(indexes) != list(range(len(data))):
        return None
    ordered = [data[0]] * len(data)
    for index, item in zip(indexes, data, strict=True):
        ordered[index] = item
    return ordered


def _counts(usage: UsageObject | None, inputs: Sequence[Sequence[Raw]]) -> Sequence[int | None]:
    """Prompt tokens of each part: one for each item, and the others in proportion to its bytes."""
    whole = Usage()
    if usage is not None:
        whole.take(usage)
    total = whole.prompt_tokens
    if total is None:
        return [None] * len(inputs)
    weights = [sum(map(len, items)) for items in inputs]
    least = [len(items) for items in inputs]
    if total < sum(least):
        return split(total, weights)
    rest = split(total - sum(least), weights)
    return [own + more for own, more in zip(least, rest, strict=True)]
