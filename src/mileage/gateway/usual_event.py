"""UsualEvent: tells a token that differs from the one before by nothing but its text."""

from __future__ import annotations

__all__ = ["UsualEvent"]

_TEXT = b'"content":"'
_QUOTE = b'"'


class UsualEvent:
    """What the events of a stream have in common before and after the text of a token.

    Engines write all tokens of a stream alike. Where only what is inside of one JSON string is
    another one, and no quote or escape of one is in it, the rest need not be looked at again: it
    holds no other event, no usage and no error, as the one had none that was learned from.
    """

    __slots__ = ("_after", "_before", "_bytes_min")

    def __init__(self) -> None:
        self._before = self._after = b""
        self._bytes_min = 0

    def learn(self, event: bytes) -> None:
        """Take a token's event for the usual one, if it has its text where most have it."""
        begin = event.find(_TEXT) + len(_TEXT)
        end = event.find(_QUOTE, begin)
        if begin < len(_TEXT) or end <= begin or b"\\" in event[begin:end]:
            return
        self._before, self._after = event[:begin], event[end:]
        self._bytes_min = len(event) - (end - begin) + 1

    def matches(self, data: bytes) -> bool:
        """Whether this is exactly one event, like the one learned, with a text."""
        before, after = self._before, self._after
        size = len(data)
        return (
            data.startswith(before)
            and data.endswith(after)
            and size >= self._bytes_min > 0
            and data.find(_QUOTE, len(before), size - len(after)) < 0
        )
