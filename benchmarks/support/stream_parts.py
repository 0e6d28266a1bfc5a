"""StreamParts: the chunks of a streamed answer as bytes, made once: events, and the end."""

from __future__ import annotations

from functools import lru_cache

from benchmarks.support.payloads import CHAT_MODEL, DONE_EVENT, chat_events, usage_event

__all__ = ["StreamParts"]


class StreamParts:
    """Chunks of HTTP/1.1; `event` carries one token, `last(n)` the n-th token and all after it."""

    def __init__(self) -> None:
        events = chat_events(3, usage=False, model=CHAT_MODEL)
        self._token, self._finish = events[1], events[-2]
        self.event = _chunk(self._token)

    @lru_cache(maxsize=256)  # noqa: B019 -- one of these lives as long as the program
    def last(self, tokens: int) -> bytes:
        """The last token, its reason to finish, the usage of so many tokens, and the end."""
        usage = usage_event(tokens, model=CHAT_MODEL)
        return _chunk(self._token + self._finish + usage + DONE_EVENT) + b"0\r\n\r\n"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)
