"""Engines' pages that are kept for a colleague: the same facts, no secret, and bounded."""

from __future__ import annotations

from mileage.doctor.collect.engine_facts import engine_facts
from mileage.doctor.collect.engine_record import EngineRecord, RecordedPage
from mileage.doctor.collect.kept_record import PAGES_MAX, kept_record
from mileage.doctor.collect.merge_facts import merge_facts
from mileage.doctor.redact import Redactor

ROOM = 1_000_000


def page(at_s: float) -> RecordedPage:
    """Ten tokens a second, four requests running; a label tells a host."""
    text = (
        "# HELP vllm:prompt_tokens_total Number of prefill tokens processed.\n"
        'vllm:num_requests_running{engine="0",model_name="m",pod_ip="10.1.2.3"} 4\n'
        f'vllm:generation_tokens_total{{engine="0",model_name="m"}} {at_s * 10}\n'
        f'vllm:prompt_tokens_total{{engine="0",model_name="m"}} {at_s * 50}\n'
        'vllm:cache_config_info{engine="0",block_size="16",num_gpu_blocks="1000"} 1\n'
    )
    return RecordedPage(at_s=at_s, at_utc_s=1.7e9 + at_s, path="/metrics", text=text)


def record(pages: int = 61) -> EngineRecord:
    return EngineRecord(
        url="http://gpu-7.corp.example.com:8000",
        pages=tuple(page(100.0 + n) for n in range(pages)),
        answers={"/v1/models": '{"data":[{"id":"m","owner":"me@example.org"}]}'},
        missing={"/info": "gpu-7.corp.example.com answered 404"},
    )


def facts(of: EngineRecord) -> dict[str, object]:
    return merge_facts(engine_facts(of)).document


def test_the_facts_stay_the_same() -> None:
    kept = kept_record(record(), Redactor(), bytes_max=ROOM)
    assert len(kept.pages) == PAGES_MAX
    assert (kept.pages[0].at_s, kept.pages[-1].at_s) == (100.0, 160.0)
    assert facts(kept) == facts(record())
    assert facts(kept)["signals"]


def test_addresses_and_people_go() -> None:
    kept = kept_record(record(), Redactor(), bytes_max=ROOM)
    text = str(kept)
    for secret in ("10.1.2.3", "example.com", "example.org"):
        assert secret not in text
    assert kept.url.startswith("http://host-")
    assert 'model_name="m"' in kept.pages[0].text


def test_it_is_no_larger_than_it_may_be() -> None:
    for room in (5_000, 1_500, 700):
        kept = kept_record(record(), Redactor(), bytes_max=room)
        assert sum(len(page.text) for page in kept.pages) <= room
        assert kept.pages[-1].at_s == 160.0


def test_what_does_not_fit_at_all_is_told() -> None:
    kept = kept_record(record(), Redactor(), bytes_max=100)
    assert kept.pages == ()
    assert "too large" in kept.missing["/metrics"]


def test_an_engine_without_pages() -> None:
    kept = kept_record(EngineRecord(url="http://127.0.0.1:1"), Redactor(), bytes_max=ROOM)
    assert kept == EngineRecord(url="http://127.0.0.1:1")
