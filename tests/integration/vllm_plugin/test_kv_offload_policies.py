"""The eviction policies in vLLM's own factory, beside its LRU: the same rules, operation by one."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.heavy

TIMEOUT_S = 600.0
SCRIPT = """
import random
from vllm.v1.kv_offload.base import ReqContext, make_offload_key
from vllm.v1.kv_offload.cpu.policies.base import CachePolicy, ChunkStatus
from vllm.v1.kv_offload.cpu.policies.factory import CachePolicyFactory
from mileage.vllm_plugin.kv_offload_policy import POLICIES, add_policies

module = "mileage.vllm_plugin.kv_offload_policy"
by_path = CachePolicyFactory.get_cache_policy_cls("ReturnAwareCachePolicy", module)
add_policies(CachePolicyFactory)
add_policies(CachePolicyFactory)
classes = {name: CachePolicyFactory.get_cache_policy_cls(name) for name in ("lru", *POLICIES)}
assert classes["return_aware"] is by_path
assert all(issubclass(each, CachePolicy) for each in classes.values())

keys = [make_offload_key(i.to_bytes(32, "big"), 0) for i in range(40)]
for seed in range(30):
    rng = random.Random(seed)
    policies = {name: cls(cache_capacity=16) for name, cls in classes.items()}
    held = {name: {} for name in policies}
    for step in range(200):
        kind = rng.choice(["store", "store", "finish", "evict", "load", "fail", "touch"])
        some = rng.sample(keys, rng.randint(1, 4))
        context = ReqContext(req_id=str(step))
        for position, key in enumerate(some):
            context.set_offload_key_position(key, 16 * (position + 1))
        n = rng.randint(1, 4)
        answers = {}
        for name, policy in policies.items():
            mine = held[name]
            if kind == "store":
                new = [key for key in some if key not in mine]
                policy.on_store_miss(new, context)
                for key in new:
                    mine[key] = ChunkStatus(len(mine))
                    policy.insert(key, mine[key])
                    mine[key].ref_cnt = 0
                    policy.mark_evictable(key)
            elif kind == "finish":
                policy.on_request_finished([some], set(), set(some), context)
            elif kind == "touch":
                policy.touch([key for key in some if key in mine], context)
            elif kind == "load":
                for key in [key for key in some if key in mine]:
                    mine[key].ref_cnt += 1
                    policy.mark_non_evictable(key)
                assert policy.evict(len(mine) + 1, set()) is None
                for key in [key for key in some if key in mine]:
                    mine[key].ref_cnt -= 1
                    policy.mark_evictable(key)
            elif kind == "fail":
                for key in [key for key in some if key in mine]:
                    policy.remove(key)
                    del mine[key]
            else:
                free = [key for key in mine if key not in some]
                found = policy.evict(n, set(some))
                assert (found is None) == (len(free) < n), (name, seed, step)
                for key, chunk in found or ():
                    assert key in free and chunk is mine[key]
                    del mine[key]
            assert all((policy.get(key) is None) == (key not in mine) for key in keys)
    for name, policy in policies.items():
        policy.clear()
        assert all(policy.get(key) is None for key in keys)
print("the same rules")
"""


def test_they_keep_the_rules_of_the_interface(vllm_python: Path, tmp_path: Path) -> None:
    script = tmp_path / "policies.py"
    script.write_text(SCRIPT)
    ended = subprocess.run(
        [str(vllm_python), str(script)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "src")},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert ended.stdout.endswith("the same rules\n")
