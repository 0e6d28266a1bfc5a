"""Batches: whatever is put together comes back to whom it belongs, and every token counts once."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support.shared_generation import World, in_loop

INPUTS = st.one_of(
    st.text(max_size=20).filter(bool),
    st.lists(st.text(max_size=5).filter(bool), min_size=1, max_size=4),
)


def items(value: Any) -> list[str]:
    """The texts of an input."""
    return [value] if isinstance(value, str) else value


@given(
    inputs=st.lists(INPUTS, min_size=2, max_size=12),
    leaving=st.sets(st.integers(0, 11)),
    tokens=st.integers(0, 200),
    refused=st.booleans(),
)
def test_each_gets_its_own_and_the_sum_is_what_the_engine_did(
    inputs: list[Any], leaving: set[int], tokens: int, refused: bool
) -> None:
    def answer(value: Any, count: int) -> dict[str, Any]:
        data = [{"index": i, "embedding": text} for i, text in enumerate(items(value))]
        return {"data": data[::-1], "usage": {"prompt_tokens": count, "total_tokens": count}}

    def story() -> None:
        world = World()
        world.controller.holding = True
        clients = [world.ask("embeddings", input=value) for value in inputs]
        world.wake()
        (call,) = world.calls
        stay = [i for i in range(len(inputs)) if i not in leaving] or [0]
        for index in set(range(len(inputs))) - set(stay):
            clients[index].leave()
        made = tokens
        if refused and len(call.fields["input"]) > 1:
            call.answer({"error": {"message": "no"}}, status=400)
            alone, made = world.calls[1:], 0
            if not alone:  # it was no batch
                return
            while any(not each.ended for each in world.calls):
                for each in [each for each in world.calls if not each.ended]:
                    each.answer(answer(each.fields["input"], 3))
                    made += 3
        else:
            call.answer(answer(call.fields["input"], tokens))
        world.flush()
        for index in stay:
            data = sorted(clients[index].json["data"], key=lambda item: int(item["index"]))
            assert [item["embedding"] for item in data] == items(inputs[index])
        rows = [world.record(client) for client in clients]
        paid = sum(row.prompt_tokens or 0 for row in rows if row.merged_into is None)
        assert paid == made
        assert not world.driver.exchanges

    in_loop(story)
