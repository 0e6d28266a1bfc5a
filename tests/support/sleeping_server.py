"""SleepingServer: answers over HTTP as a vLLM with sleep mode does, and notes misuse."""

from __future__ import annotations

from tests.support.stand_in import Asked, Reply, StandIn, json_reply

__all__ = ["SleepingServer"]

_ANSWER = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 0,
    "model": "llama",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "Hi."}, "finish_reason": "stop"}
    ],
    "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
}


class SleepingServer(StandIn):
    """`chats` it has answered; `misused`: what it was asked in its sleep, or without mode=keep."""

    def __init__(self, *, asleep: bool = False) -> None:
        super().__init__()
        self.asleep = asleep
        self.chats = self.sleeps = self.wakes = 0
        self.misused: list[str] = []

    def reply(self, asked: Asked) -> Reply:
        """By its path."""
        name, _, query = asked.path.partition("?")
        if name == "/is_sleeping":
            return json_reply(200, {"is_sleeping": self.asleep})
        if name == "/v1/models":
            return json_reply(200, {"object": "list", "data": [{"id": "llama", "object": "model"}]})
        if name == "/health":
            return json_reply(200, {})
        if name == "/sleep":
            if "mode=keep" not in query:
                self.misused.append(asked.path)
            self.asleep, self.sleeps = True, self.sleeps + 1
            return json_reply(200, {})
        if name == "/wake_up":
            self.asleep, self.wakes = False, self.wakes + 1
            return json_reply(200, {})
        if name == "/v1/chat/completions":
            if self.asleep:
                self.misused.append(asked.path)
            self.chats += 1
            return json_reply(200, _ANSWER)
        return json_reply(404, {"detail": "Not Found"})
