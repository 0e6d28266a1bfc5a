"""The calls that `waiting_max` bounds are those of the vLLM that is here, no more and no less."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from mileage.vllm_plugin.inference_paths import INFERENCE_POSTS

pytestmark = pytest.mark.heavy

TIMEOUT_S = 600.0
SCRIPT = """
import importlib, json, pkgutil, sys
from types import SimpleNamespace
import vllm.entrypoints
from fastapi import APIRouter
from mileage.vllm_plugin.inference_paths import INFERENCE_POSTS, inference_posts

routes = []
for each in pkgutil.walk_packages(vllm.entrypoints.__path__, "vllm.entrypoints."):
    if each.name.endswith(".api_router"):
        found = vars(importlib.import_module(each.name)).values()
        routes += [route for router in found if isinstance(router, APIRouter)
                   for route in router.routes]
posts = sorted({r.path for r in routes if "POST" in (getattr(r, "methods", None) or ())})
sockets = sorted({route.path for route in routes if not hasattr(route, "methods")})
bounded = inference_posts(SimpleNamespace(routes=routes))
print(json.dumps({
    "posts": posts,
    "sockets": sockets,
    "bounded": sorted(bounded & set(posts)),
    "news": sorted(bounded - INFERENCE_POSTS),
}))
"""
NO_INFERENCE = (
    *("abort_requests", "cancel", "count_tokens", "render", "derender", "tokenize", "detokenize"),
    *("load_lora_adapter", "unload_lora_adapter", "ping", "is_scaling_elastic_ep"),
    *("scale_elastic_ep", "start_profile", "stop_profile", "reset_prefix_cache", "collective_rpc"),
    *("reset_mm_cache", "reset_encoder_cache", "sleep", "wake_up", "release_kv_cache_memory"),
    *("pause", "resume", "apply", "weight_checker"),
)
"""The last part of a path that adds nothing to an engine's queue."""


def test_each_call_of_this_version_is_known_as_inference_or_as_none(vllm_python: Path) -> None:
    ended = subprocess.run(
        [str(vllm_python), "-c", SCRIPT],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "src")},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    found = json.loads(ended.stdout.splitlines()[-1])
    assert len(found["bounded"]) > 15
    assert found["news"] == []
    others = set(found["posts"]) - INFERENCE_POSTS
    unknown = {path for path in others if path.rpartition("/")[2] not in NO_INFERENCE}
    assert {path for path in unknown if "weight" not in path} == set()
    assert found["sockets"] == ["/v1/realtime"]
