"""The child process: runs llama.cpp's server until the parent closes our stdin or dies.

`python -m mileage.engines.embedded.child`; see `child_params` for what it reads and writes. Started
by `child_process`, and in a process of its own so that a crash of native code ends nothing else.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
from typing import Any, BinaryIO

import msgspec

from mileage.engines.embedded.child_params import ChildParams, ChildReport, Failed, Ready

__all__ = ["main"]

_PARENT_POLL_S = 1.0
_CPU_BATCH_TOKENS = 256
"""Tokens per step. On a CPU a larger step is no faster per token (measured: 64 to 2048), and every
running answer waits for the whole step while a long prompt is read."""
_CACHE_RAM_SHARE = 16
_CACHE_RAM_MIB_MAX = 2048
_LOG_ERRORS_ONLY = 1
_STREAM_TIMEOUT_S = 600
_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Start the server, report, and stay until the parent is gone."""
    report = _take_stdout()
    _leave_signals_to_the_parent()
    params = msgspec.json.decode(sys.stdin.buffer.readline(), type=ChildParams)
    _prefer_as_oom_victim()
    _die_with_parent(params.parent_pid)
    try:
        _server = _serve(params)
    except (RuntimeError, ValueError, ImportError, OSError) as error:
        _write_log_out()
        _send(report, Failed(str(error)))
        return 1
    _die_with_parent(None)
    _send(report, Ready())
    _wait_for_the_end(params.parent_pid)
    # Not by returning: that destroys the server, which waits for answers that no one reads.
    sys.stderr.flush()
    os._exit(0)


def _take_stdout() -> BinaryIO:
    """Keep stdout for reports alone: what native code prints there goes to stderr."""
    report = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    return report


def _leave_signals_to_the_parent() -> None:
    """Ctrl-C and service managers signal the whole group; the parent still drains through us."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def _prefer_as_oom_victim() -> None:
    """Where memory ends, the engine, which is restarted, goes before the gateway."""
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write("500")
    except OSError:
        pass  # not Linux, or not allowed: the kernel's own choice stands


def _die_with_parent(parent_pid: int | None) -> None:
    """While the model loads, which may take minutes without a look at stdin, die with the parent.

    Off again with None: the signal comes when the parent's THREAD that started us ends.
    """
    if sys.platform != "linux":
        return
    number = signal.SIGKILL if parent_pid is not None else 0
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
    if parent_pid is not None and os.getppid() != parent_pid:
        os._exit(0)  # it died before we asked


def _wait_for_the_end(parent_pid: int) -> None:
    """Return when stdin ends or, if another process inherited its other end, the parent dies."""
    descriptor = sys.stdin.fileno()
    while os.getppid() == parent_pid:
        ready, _, _ = select.select([descriptor], [], [], _PARENT_POLL_S)
        if ready and not os.read(descriptor, 4096):
            return


def _send(report: BinaryIO, message: ChildReport) -> None:
    report.write(msgspec.json.encode(message) + b"\n")


def _serve(params: ChildParams) -> Any:
    """Load the model and listen. Raises RuntimeError."""
    import xllamacpp

    devices = xllamacpp.get_device_info()
    memory = sum(device["memory_total"] for device in devices)
    if params.kv_bytes is not None and params.kv_bytes > memory:
        raise RuntimeError(
            f"{params.slots} slots with a context of {params.context_tokens} tokens need a KV cache"
            f" of {params.kv_bytes / 2**30:.1f} GiB, this machine has {memory / 2**30:.1f} GiB;"
            " lower embedded.slots or embedded.context_tokens"
        )
    kinds = xllamacpp.ggml_backend_dev_type
    on_gpu = any(
        device["type"] in (kinds.GGML_BACKEND_DEVICE_TYPE_GPU, kinds.GGML_BACKEND_DEVICE_TYPE_IGPU)
        for device in devices
    )
    return xllamacpp.Server(_common_params(xllamacpp, params, on_gpu))


def _common_params(library: Any, params: ChildParams, on_gpu: bool) -> Any:
    common = library.CommonParams()
    common.model.path = params.model
    common.model_alias = {params.served_name}
    common.hostnames = ["127.0.0.1"]
    common.port = params.port
    common.reuse_port = True  # the parent holds the port with a socket of its own
    common.api_keys = [params.api_key]
    common.n_threads_http = params.http_threads
    common.timeout_read = common.timeout_write = _STREAM_TIMEOUT_S
    common.ui = False
    common.endpoint_metrics = common.endpoint_slots = True
    common.verbosity = _LOG_ERRORS_ONLY

    common.n_parallel = params.slots
    common.n_ctx = params.slots * params.context_tokens
    common.cache_type_k = getattr(library.ggml_type, f"GGML_TYPE_{params.cache_type_k.upper()}")
    common.cache_type_v = getattr(library.ggml_type, f"GGML_TYPE_{params.cache_type_v.upper()}")
    # What slots leave in this cache does not tell by which adapter it was read; what is in a slot
    # does, but only where a request names an adapter, and those of /v1/messages cannot.
    shared = 0 if params.adapters else _CACHE_RAM_MIB_MAX
    common.cache_ram_mib = min(shared, _memory_mib() // _CACHE_RAM_SHARE)
    common.cache_prompt = not params.adapters  # unless a request says so
    common.cpuparams.n_threads = common.cpuparams_batch.n_threads = params.threads
    common.fit_params = on_gpu
    if not on_gpu:
        common.n_batch = common.n_ubatch = _CPU_BATCH_TOKENS

    common.embedding = True
    if params.own_pooling:
        # Such pooling sees a text whole: it must fit into one step.
        common.n_batch = common.n_ubatch = params.context_tokens
    else:
        common.pooling_type = library.llama_pooling_type.LLAMA_POOLING_TYPE_LAST
    adapters = []
    for number, path in enumerate((*params.lora, *params.adapters)):
        adapter = library.CommonAdapterLoraInfo()
        adapter.path, adapter.scale = path, 1.0 if number < len(params.lora) else 0.0
        adapters.append(adapter)
    common.lora_adapters = adapters
    return common


def _write_log_out() -> None:
    """What llama.cpp says of a failure is written by a thread of its own, which would end with us.

    The names are those of its C++ functions; where a version has others, a reason may be missing.
    """
    module = getattr(sys.modules.get("xllamacpp"), "xllamacpp", None)
    if module is None:
        return
    with contextlib.suppress(AttributeError, OSError):
        library = ctypes.CDLL(module.__file__)
        log, flush = library._Z15common_log_mainv, library._Z16common_log_flushP10common_log
        log.restype, flush.argtypes, flush.restype = ctypes.c_void_p, [ctypes.c_void_p], None
        flush(log())


def _memory_mib() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)
