"""Which profiler answers which question, with which bounded command, and what that costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, get_args

import msgspec

__all__ = ["TOPICS", "ProfilePlan", "ProfileTool", "Topic", "plan_profile", "topic_of"]

Topic = Literal["gaps", "kernels", "memory", "communication", "cpu"]
ProfileTool = Literal["torch", "nsys", "ncu", "py-spy"]

TOPICS: Final[tuple[Topic, ...]] = get_args(Topic)
ENGINE_WORDS: Final = ("ENGINE", "COMMAND")
"""Stands where the engine's own command line belongs."""
_CAUSES: Final[Mapping[Topic, frozenset[str]]] = {
    "gaps": frozenset(
        {
            "engine_host_bound",
            "enforce_eager_on",
            "serial_sampling_cpu",
            "idle_busy_spin",
            "static_batching",
            "no_chunked_prefill",
            "chunk_too_small_offline",
            "speculation_not_paying",
            "version_regression",
            "kernels_not_warm",
            "cold_start_compile_capture",
            "cold_start_kernel_cache",
        }
    ),
    "kernels": frozenset(
        {
            "wrong_quant_kernel",
            "quant_slow_at_high_batch",
            "lora_kernel_overhead",
            "lora_rank_overallocated",
        }
    ),
    "memory": frozenset(
        {
            "unquantised_memory_bound",
            "stale_cpu_offload",
            "tp_replicates_mla_kv",
        }
    ),
    "communication": frozenset(
        {
            "tp_too_large_for_small_model",
            "interconnect_saturated",
            "no_p2p_all_reduce",
            "network_socket_fallback",
            "dp_imbalance",
            "vgpu_sm_limit_breaks_tp",
        }
    ),
    "cpu": frozenset(
        {
            "frontend_cpu_bound",
            "tokenizer_cpu_bound",
            "guided_decoding_cpu",
            "logprobs_postprocessing",
            "mm_preprocess_cpu_bound",
            "mm_ipc_serialisation",
            "ensemble_postprocessing",
            "proxy_cpu_bound",
            "cpu_thread_oversubscription",
            "startup_cpu_starved",
            "load_generator_bound",
            "triton_single_instance",
            "probes_too_frequent",
            "host_memory_leak",
        }
    ),
}
_NSYS_REPORTS: Final = "cuda_gpu_trace,cuda_api_trace,nvtx_pushpop_trace"
_NCU_METRICS: Final = (
    "gpu__time_duration.sum",
    "sm__cycles_active.avg",
    "sm__cycles_elapsed.max",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
)
_NCU_LAUNCHES: Final = 200
_NCU_SKIP: Final = 5000
"""Launches of a start and its warm-up that are passed over."""
_START_S: Final = 120
"""Seconds that an engine gets to start before nsys begins to record."""


class ProfilePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to run, and what is to be known before it is run."""

    topic: Topic
    tool: ProfileTool
    commands: tuple[tuple[str, ...], ...]
    """Lists of words, one after another; what the last one prints or writes is what is read."""
    directory: str
    """To be made first; the results are in it."""
    result: str
    """File that holds what is to be read."""
    timeout_s: float
    """All of it takes no longer."""
    cost: str
    disturbs: str
    install: str
    is_whole: bool = True
    """False: the command has a word that stands for something that is not known."""


def topic_of(question: str) -> Topic | None:
    """The topic of its own name, or the one that a cause belongs to; None where none is."""
    for topic, causes in _CAUSES.items():
        if question == topic or question in causes:
            return topic
    return None


def plan_profile(
    topic: Topic,
    *,
    directory: str,
    for_s: float,
    url: str | None = None,
    pid: int | None = None,
    command: Sequence[str] = (),
    tool: ProfileTool | None = None,
) -> ProfilePlan:
    """The tool for the topic with what is known, or `tool`; its bounded command.

    py-spy and torch.profiler look at what runs already; nsys and ncu have to start it, by
    `command`. `directory`: where results are written.
    """
    chosen = tool or _tool(topic, url, command)
    if chosen == "py-spy":
        return _py_spy(topic, directory, for_s, pid)
    if chosen == "torch":
        return _torch(topic, directory, for_s, url)
    if chosen == "nsys":
        return _nsys(topic, directory, for_s, command)
    return _ncu(topic, directory, for_s, command)


def _tool(topic: Topic, url: str | None, command: Sequence[str]) -> ProfileTool:
    if topic == "cpu":
        return "py-spy"
    if url is not None and not command:
        return "torch"
    return "ncu" if topic in ("kernels", "memory") else "nsys"


def _py_spy(topic: Topic, directory: str, for_s: float, pid: int | None) -> ProfilePlan:
    result = f"{directory}/stacks.txt"
    words = (
        *("py-spy", "record", "--pid", "PID" if pid is None else str(pid), "--subprocesses"),
        *("--threads", "--nonblocking", "--rate", "50", "--duration", f"{for_s:.0f}"),
        *("--format", "raw", "--output", result),
    )
    return ProfilePlan(
        topic=topic,
        tool="py-spy",
        commands=(words,),
        directory=directory,
        result=result,
        timeout_s=for_s + 60,
        cost=f"{for_s:g} s; about a twentieth of a core, outside of the engine",
        disturbs="nothing is paused (--nonblocking), so that some samples are lost; it needs to "
        "be the same user with kernel.yama.ptrace_scope=0, or root (in a container CAP_SYS_PTRACE)",
        install="pip install py-spy",
        is_whole=pid is not None,
    )


def _torch(topic: Topic, directory: str, for_s: float, url: str | None) -> ProfilePlan:
    base = url or "http://HOST:PORT"
    post = ("curl", "--fail", "--max-time")
    return ProfilePlan(
        topic=topic,
        tool="torch",
        commands=(
            (*post, "60", "-X", "POST", f"{base}/start_profile"),
            ("sleep", f"{for_s:g}"),
            (*post, "600", "-X", "POST", f"{base}/stop_profile"),
        ),
        directory=directory,
        result=directory,
        timeout_s=for_s + 700,
        cost=f"{for_s:g} s of profile, up to gigabytes of trace, and up to minutes to write it",
        disturbs="steps get slower, by half or more where many small kernels are launched; while "
        "the trace is written nobody is answered: gaps of the host look longer than they are, "
        "shares of kernels are true",
        install="start vLLM with --profiler-config.profiler=torch "
        "--profiler-config.torch_profiler_dir=DIRECTORY (earlier releases: "
        "VLLM_TORCH_PROFILER_DIR=DIRECTORY); SGLang needs nothing",
        is_whole=url is not None,
    )


def _nsys(topic: Topic, directory: str, for_s: float, command: Sequence[str]) -> ProfilePlan:
    record = (
        *("nsys", "profile", "--trace=cuda,nvtx,osrt", "--sample=none", "--cpuctxsw=none"),
        *("--cuda-graph-trace=node", "--trace-fork-before-exec=true", f"--delay={_START_S}"),
        *(f"--duration={for_s:.0f}", "--kill=sigterm", "--force-overwrite=false"),
        *(f"--output={directory}/run", *(command or ENGINE_WORDS)),
    )
    stats = (
        *("nsys", "stats", "--report", _NSYS_REPORTS, "--format", "csv", "--output", "-"),
        f"{directory}/run.nsys-rep",
    )
    return ProfilePlan(
        topic=topic,
        tool="nsys",
        commands=(record, stats),
        directory=directory,
        result=f"{directory}/stats.csv",
        timeout_s=_START_S + for_s + 600,
        cost=f"a start of the engine under nsys ({_START_S} s pass before it records), {for_s:g} s "
        "of record, then minutes to export it; the engine is ended after that",
        disturbs="a few percent of each launch; kernels within CUDA graphs are told one by one, "
        "which makes graphs slower; it needs traffic while it records",
        install="Nsight Systems: https://developer.nvidia.com/nsight-systems (apt: nsight-systems)",
        is_whole=bool(command),
    )


def _ncu(topic: Topic, directory: str, for_s: float, command: Sequence[str]) -> ProfilePlan:
    record = (
        *("ncu", "--target-processes", "all", "--graph-profiling", "node"),
        *("--launch-skip", str(_NCU_SKIP), "--launch-count", str(_NCU_LAUNCHES)),
        *("--kernel-name", "regex:^(?!nccl)", "--replay-mode", "kernel", "--clock-control", "none"),
        *("--metrics", ",".join(_NCU_METRICS), "--kill", "yes", "--csv", "--page", "raw"),
        *("--log-file", f"{directory}/kernels.csv", *(command or ENGINE_WORDS)),
    )
    return ProfilePlan(
        topic=topic,
        tool="ncu",
        commands=(record,),
        directory=directory,
        result=f"{directory}/kernels.csv",
        timeout_s=for_s + 1800,
        cost=f"{_NCU_LAUNCHES} launches after the first {_NCU_SKIP}, each repeated for every group "
        "of counters with the GPU's memory saved and restored: minutes; never where users wait",
        disturbs="the engine runs tens of times slower and is ended after it; kernels that talk "
        "to other GPUs are left out, since they hang when they are repeated; it needs the right "
        "to read counters (else ERR_NVGPUCTRPERM): root, or NVreg_RestrictProfilingToAdminUsers=0",
        install="Nsight Compute: https://developer.nvidia.com/nsight-compute (with CUDA's toolkit)",
        is_whole=bool(command),
    )
