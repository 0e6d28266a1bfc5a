"""What a meter makes of an event does not depend on the events before it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mileage.gateway.stream import StreamMeter

TEXTS = st.sampled_from(
    ["", " a", "b", "длинный", '\\"', "x\\\\", "\\n", '\\"usage\\":{', "[DONE]", '","error":"x']
)
EVENTS = st.one_of(
    st.builds(
        'data: {{"choices":[{{"index":{},"delta":{{"content":"{}"}},"end":{}}}]}}{}'.format,
        st.integers(0, 1),
        TEXTS,
        st.sampled_from(["null", '"stop"']),
        st.sampled_from(["\n\n", "\r\n\r\n"]),
    ),
    st.sampled_from(
        [
            ": ping\n\n",
            "data: [DONE]\n\n",
            'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3}}\n\n',
            'data: {"choices":[{"delta":{"content":"a"}}],"usage":{"completion_tokens":1}}\n\n',
            'data: {"choices":[{"delta":{"content":"a"}}],"error":{"message":"m"}}\n\n',
            'data: {"choices":[{"text":"a"}]}\n\n',
            'data: {"choices":[{"delta":{"content":"a"}}]}\n\n: ping\n\n',
            "data: nonsense\n\n",
        ]
    ),
)


@given(st.lists(EVENTS, max_size=30), st.booleans())
def test_events_are_metered_alike_after_any_others(events: list[str], hide: bool) -> None:
    meter = StreamMeter("chat", hide_usage=hide)
    for at, event in enumerate(events):
        data = event.encode()
        alone = StreamMeter("chat", hide_usage=hide)
        before = meter.events
        assert meter.take(data, float(at)) == alone.take(data, 0.0)
        assert meter.events - before == alone.events
        assert meter.ended >= alone.ended
        assert meter.failed >= alone.failed
        if alone.usage.output_tokens is not None:
            assert meter.usage.output_tokens is not None
    assert meter.rest() == b""
