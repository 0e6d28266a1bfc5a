"""What is sent to a colleague holds no secret, and still says which host is which."""

from __future__ import annotations

import pytest

from mileage.doctor.redact import Redactor


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("Authorization: Bearer abcdef123456", "Authorization: Bearer ***"),
        ("--api-key sk-proj-abc123DEF456", "--api-key ***"),
        ("api_key='very-secret-1'", "api_key='***'"),
        ('{"hf_token": "hf_abcdefghijkl"}', '{"hf_token": "***"}'),
        ("HF_TOKEN=hf_abcdefghijkl x", "HF_TOKEN=*** x"),
        ("postgres://me:pass@db.example.org/x", "postgres://me:***@host-1/x"),
        ("key sk-abcdefgh12345", "key sk-***"),
        ("eyJhbGciOiJIUzI1.eyJzdWIi.sig", "***"),
        ("max_tokens=256, api_key=None", "max_tokens=256, api_key=None"),
        ("max_num_batched_tokens: 8192", "max_num_batched_tokens: 8192"),
        ("num_tokens='12'", "num_tokens='12'"),
        ("/home/alice/models/x", "/home/user-1/models/x"),
        ("mail bob@example.org now", "mail mail-1 now"),
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("version 0.10.1.1", "version 0.10.1.1"),
        ("v 1.2.3.4 of NCCL v2.27.3.1", "v 1.2.3.4 of NCCL v2.27.3.1"),
        ("driver_version: 535.104.5.1", "driver_version: 535.104.5.1"),
        ("version 1.2.3.4 at 10.0.0.7", "version 1.2.3.4 at host-1"),
        ("serve 10.0.0.7", "serve host-1"),
        ("Avg prompt throughput: 16.5 tokens/s", "Avg prompt throughput: 16.5 tokens/s"),
    ],
)
def test_a_line(line: str, left: str) -> None:
    assert Redactor().text(line) == left


def test_an_address_keeps_one_name() -> None:
    redactor = Redactor()
    assert redactor.text("10.0.0.1 -> 10.0.0.2") == "host-1 -> host-2"
    assert redactor.text("http://10.0.0.2:80/") == "http://host-2:80/"


def test_a_version_of_four_numbers_stays() -> None:
    document = {"version": "0.10.1.1", "driver_version": "535.104.5.1", "peer": "10.0.0.7"}
    assert Redactor().document(document) == document | {"peer": "host-1"}


def test_a_document_loses_what_stands_under_a_secrets_name() -> None:
    document = {"token": "x", "max_tokens": 5, "list": [{"api_key": "y"}], "t": "at 10.1.1.1"}
    assert Redactor().document(document) == {
        "token": "***",
        "max_tokens": 5,
        "list": [{"api_key": "***"}],
        "t": "at host-1",
    }


@pytest.mark.parametrize(
    "line",
    [
        "non-default args: {'api_key': ['HUSH1234'], 'model': 'x'}",
        "Namespace(api_key=['HUSH1234', 'HUSH5678'], port=8000)",
        "['--api-key', 'HUSH1234']",
        "AWS_SECRET_ACCESS_KEY=HUSH1234",
        "LITELLM_MASTER_KEY=HUSH1234",
        "- name: HF_TOKEN\n  value: HUSH1234",
        '{"name":"API_KEY","value":"HUSH1234"}',
        'password: "three words HUSH1234"',
        "https://api.example.org/v1?key=HUSH1234&x=1",
        "https://x.blob.example.net/c?sv=2022&sig=HUSH1234%3D",
        "https://HUSH1234@github.com/x",
        "curl -u admin:HUSH1234 http://x",
        "Authorization: Token HUSH1234",
        "Set-Cookie: sid=HUSH1234; Path=/",
        "github_pat_11AAHUSH1234",
        "-----BEGIN PRIVATE KEY-----\nMIIEHUSH1234",
        "secretKey: HUSH1234",
        '{"auth": "HUSH1234=="}',
        "Received request cmpl-1: prompt: 'my HUSH1234', params: SamplingParams(n=1)",
        '"messages": [{"role": "user", "content": "HUSH1234"}], "n": 1',
        "Host: HUSH1234.prod.corp.internal",
    ],
)
def test_no_form_of_a_secret_is_left(line: str) -> None:
    assert "HUSH" not in Redactor().text(line)


@pytest.mark.parametrize(
    "line",
    [
        "0/5 nodes are available: 5 Insufficient nvidia.com/gpu.",
        "#running-req: 4, #full token: 2642688, full token usage: 1.00, #new-token: 512",
        "eos_token_id=2, tokenizer='x', max_num_batched_tokens=8192, hf_overrides={}",
        "Capturing CUDA graph shapes: 100%|##########| 35/35 [00:21<00:00,  1.61it/s]",
    ],
)
def test_what_a_diagnosis_rests_on_stays(line: str) -> None:
    assert Redactor().text(line) == line


def test_arguments_and_variables_in_a_document() -> None:
    document = {
        "args": ["--api-key", "x", "--port", "80"],
        "env": [{"name": "A_KEY", "value": 1}, {"name": "HF_TOKEN", "value": "x"}],
    }
    assert Redactor().document(document) == {
        "args": ["--api-key", "***", "--port", "80"],
        "env": [{"name": "A_KEY", "value": 1}, {"name": "HF_TOKEN", "value": "***"}],
    }


@pytest.mark.parametrize("piece", ["x", "a.", "token", "--", "name:", '"', "['", "://", "text=["])
def test_a_long_line_takes_no_longer_than_its_length(piece: str) -> None:
    assert Redactor().text(piece * 20_000)
