"""The other gateways: vllm-router and LiteLLM proxy, each configured to be fast."""

from __future__ import annotations

import json
import os
from pathlib import Path

from benchmarks.support.payloads import CHAT_MODEL, STREAM_MODEL
from benchmarks.support.processes import NotReadyError, Service, free_port
from benchmarks.support.stacks import ROOT, Stack, Upstreams, first_line

__all__ = [
    "ROUTER_DEFAULT_POLICY",
    "ROUTER_POLICIES",
    "litellm_config",
    "start_litellm",
    "start_vllm_router",
]

ROUTER_POLICIES = ("round_robin", "random", "cache_aware")
"""Those that run with one worker and no tokenizer."""
ROUTER_DEFAULT_POLICY = "cache_aware"


def start_vllm_router(
    upstreams: Upstreams, directory: Path, *, core: int, policy: str = "round_robin"
) -> Stack:
    """vllm-router in regular mode, one for each upstream, as it does not route by model."""
    program = _installed("vllm-router", "MILEAGE_BENCH_VLLM_ROUTER")
    version = _package_version(program, "vllm-router")
    directory.mkdir(parents=True, exist_ok=True)
    stack = Stack("vllm-router", version, chat_port=free_port(), stream_port=free_port())
    for port, upstream in (
        (stack.chat_port, upstreams.chat_port),
        (stack.stream_port, upstreams.stream_port),
    ):
        argv = [
            *(str(program), "--host", "127.0.0.1", "--port", str(port)),
            *("--worker-urls", f"http://127.0.0.1:{upstream}", "--policy", policy),
            *("--log-level", "error", "--prometheus-port", str(free_port())),
            *("--worker-startup-check-interval", "1"),
        ]
        log = directory / f"vllm-router-{policy}-{port}.log"
        service = Service("vllm-router", argv, core=core, log=log)
        stack.start(service, f"http://127.0.0.1:{port}/health", timeout_s=30)
    return stack


def litellm_config(upstreams: Upstreams, key: str) -> str:
    """Its configuration (JSON is YAML): two models, a key, neither a database nor logging."""
    models = ((CHAT_MODEL, upstreams.chat_port), (STREAM_MODEL, upstreams.stream_port))
    return json.dumps(
        {
            "model_list": [
                {
                    "model_name": model,
                    "litellm_params": {
                        "model": f"openai/{model}",
                        "api_base": f"http://127.0.0.1:{port}/v1",
                        "api_key": "none",
                    },
                }
                for model, port in models
            ],
            "litellm_settings": {"num_retries": 0, "request_timeout": 600, "telemetry": False},
            "router_settings": {"disable_cooldowns": True},
            "general_settings": {"master_key": key, "disable_spend_logs": True},
        }
    )


def start_litellm(upstreams: Upstreams, directory: Path, *, core: int) -> Stack:
    """LiteLLM proxy with one worker (there is one core) on granian, the faster of its servers."""
    program = _installed("litellm", "MILEAGE_BENCH_LITELLM")
    port, key = free_port(), "sk-litellm-benchmark"
    directory.mkdir(parents=True, exist_ok=True)
    config = directory / "litellm.yaml"
    config.write_text(litellm_config(upstreams, key))
    argv = [
        *(str(program), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)),
        *("--num_workers", "1", "--run_granian", "--telemetry", "False"),
    ]
    settings = {
        "LITELLM_LOG": "ERROR",
        "LITELLM_MODE": "PRODUCTION",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    stack = Stack(
        "litellm",
        _package_version(program, "litellm"),
        chat_port=port,
        stream_port=port,
        key=key,
        reencodes=True,
    )
    service = Service("litellm", argv, core=core, log=directory / "litellm.log", env=settings)
    stack.start(service, f"http://127.0.0.1:{port}/health/liveliness", timeout_s=120)
    return stack


def _installed(name: str, variable: str) -> Path:
    program = Path(os.environ.get(variable, ROOT / ".venvs" / name / "bin" / name))
    if not program.exists():
        raise NotReadyError(f"{name} is not at {program}; install it or set {variable}")
    return program


def _package_version(program: Path, package: str) -> str:
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    return first_line([str(program.parent / "python"), "-c", code])
