"""Names of settings: the effective values that a deployment runs with."""

from __future__ import annotations

from mileage.doctor.fact_kind import Kind, flag, number, one_of, text

__all__ = ["SETTINGS"]

SETTINGS: dict[str, Kind] = {
    "tensor_parallel_size": number("count", "cards that share each layer"),
    "pipeline_parallel_size": number("count", "stages that the layers are cut into"),
    "data_parallel_size": number("count", "ranks behind one address, each with its own batch"),
    "enable_expert_parallel": flag("experts are spread over the ranks"),
    "max_num_seqs": number("count", "requests that may run at once"),
    "max_num_batched_tokens": number("tokens", "tokens of one step"),
    "max_model_len": number("tokens", "longest prompt and answer together"),
    "gpu_memory_utilization": number("ratio", "share of the card's memory that the engine takes"),
    "enforce_eager": flag("CUDA graphs are off, as it is in effect"),
    "enable_prefix_caching": flag("prefix cache, as it is in effect"),
    "enable_chunked_prefill": flag("prompts are cut into chunks, as it is in effect"),
    "block_size": number("tokens", "tokens of one block (page) of the KV cache"),
    "kv_cache_dtype": text("how keys and values are stored: auto, fp8, ..."),
    "quantization": text("quantisation that was asked for"),
    "quantization_kernel": text(
        "kernels that multiply the weights: awq, awq_marlin, gptq, marlin, ..."
    ),
    "cpu_offload_gb": number("GiB", "weights kept in the host's memory, for each card"),
    "swap_space": number(
        "GiB", "host memory for keys and values that are swapped out, for each card"
    ),
    "preemption_mode": one_of(
        "recompute", "swap", meaning="what becomes of a preempted request (vLLM's first generation)"
    ),
    "disable_custom_all_reduce": flag("the engine's own all-reduce is off"),
    "speculative.num_tokens": number("tokens", "tokens that are drafted for a step"),
    "speculative.method": one_of(
        "draft_model",
        "ngram",
        "mtp",
        "eagle",
        meaning="how tokens are drafted; not set: no speculation",
    ),
    "speculative.draft_params_b": number("1e9", "parameters of the draft model"),
    "enable_lora": flag("adapters can be served"),
    "max_loras": number("count", "adapters on the card at once"),
    "max_cpu_loras": number("count", "adapters in the host's memory"),
    "max_lora_rank": number("rank", "rank that the adapters' buffers are made for"),
    "structured_output_backend": text("what makes the masks: outlines, xgrammar, llguidance, ..."),
    "mm_processor_workers": number("count", "workers that prepare images, video or audio"),
    "mm_resize_library": text("library that resizes images"),
    "mm_resize_threads": number("count", "threads that resize images"),
    "api_server_count": number("count", "processes of the API server"),
    "api_server_mode": one_of(
        "in_process",
        "separate_process",
        "none",
        meaning="where HTTP is served; none: the engine is a library",
    ),
    "tokenizer_threads": number("count", "threads or processes that tokenise"),
    "tokenizer_mode": one_of("fast", "slow", meaning="which tokenizer"),
    "safetensors_load_strategy": one_of(
        "lazy", "eager", meaning="how weights are read; lazy: by mmap"
    ),
    "storage.weights_fs": text("file system of the weights: local_nvme, nfs, lustre, efs, ..."),
    "storage.page_cache": one_of(
        "hot", "cold", meaning="are the weights in the page cache at the start"
    ),
    "storage.compile_cache": one_of(
        "empty", "populated", meaning="torch.compile's cache at the start"
    ),
    "storage.kernel_cache": one_of(
        "empty", "populated", meaning="cache of compiled and tuned kernels at the start"
    ),
    "scheduler.policy": one_of(
        "guaranteed_no_evict", "max_utilization", meaning="TensorRT-LLM's capacity policy"
    ),
    "scheduler.admission": one_of(
        "per_chunk",
        "full_prompt",
        meaning="what must fit the KV cache for a request to be admitted",
    ),
    "max_tokens_in_paged_kv_cache": number("tokens", "most tokens of the KV pool (TensorRT-LLM)"),
    "num_reserved_decode_tokens": number("tokens", "tokens reserved for each request that decodes"),
    "disaggregation_mode": one_of(
        "none", "prefill", "decode", meaning="the engine's part where prefill and decode are apart"
    ),
    "triton.postprocessing_instances": number("count", "instances of the model that detokenises"),
    "triton.dynamic_batching_delay_s": number("s", "longest wait for a batch"),
    "triton.preferred_batch_size": number("count", "batch that the batcher waits for"),
    "triton.decoupled": flag("a request may have many responses (streaming)"),
    "nccl.net_transport": one_of("socket", "ib", meaning="how NCCL crosses the network"),
    "env.OMP_NUM_THREADS": number("count", "the engine's environment: threads of OpenMP"),
    "env.NCCL_P2P_DISABLE": number("flag", "the engine's environment: 1 switches peer-to-peer off"),
    "env.VLLM_SKIP_P2P_CHECK": number(
        "flag", "the engine's environment: 1 skips the test of it at the start"
    ),
    "k8s.cpu_request": number("cores", "CPUs that the pod asks for"),
    "k8s.cpu_limit": number("cores", "CPUs that the pod's quota allows"),
    "k8s.privileged": flag("the container may open the machine's devices"),
    "k8s.gpu_request": number("count", "cards that one pod asks for"),
    "k8s.gpu_sharing": one_of(
        "none", "time_slicing", "mps", "mig", "hami", meaning="how pods share one card"
    ),
    "k8s.gpu_replicas_label": number("count", "copies that one card is offered as (time-slicing)"),
    "k8s.pods_on_gpu": number("count", "pods on the same card"),
    "k8s.startup_deadline_s": number("s", "time after which a pod that is not ready is ended"),
    "vgpu.core_limit_ratio": number("ratio", "share of the SMs' time that is granted"),
    "vgpu.policy": one_of("default", "force", meaning="how that share is enforced"),
    "hpa.metric": text("metric that the autoscaler follows"),
    "hpa.target": number("metric unit", "its value that the autoscaler aims at"),
    "hpa.min_replicas": number("count", "fewest replicas (any autoscaler)"),
    "hpa.max_replicas": number("count", "most replicas; not set: no bound"),
    "hpa.scale_down_stabilization_s": number(
        "s", "time that the HPA looks back before it scales down"
    ),
    "hpa.scale_down_policy": one_of("gradual", "immediate", meaning="how the HPA scales down"),
    "keda.cooldown_s": number("s", "time without a trigger before KEDA scales to zero"),
    "keda.polling_s": number("s", "time between two looks at a trigger"),
    "keda.min_replicas": number("count", "KEDA's minReplicaCount"),
    "keda.idle_replicas": number("count", "KEDA's idleReplicaCount"),
    "knative.scale_to_zero_window_s": number(
        "s", "time without traffic before Knative scales to zero"
    ),
    "autoscaler.kind": text("what scales: hpa, keda, knative, ..."),
    "router.policy": one_of(
        "round_robin",
        "consistent_hash",
        "cache_aware",
        "kv_aware",
        "least_loaded",
        "random",
        meaning="how a replica is chosen",
    ),
    "router.load_term": flag("the choice looks at the replicas' load"),
    "dp_balancer.mode": one_of(
        "internal", "external", meaning="who spreads requests over the ranks"
    ),
    "dp_balancer.stats_interval_s": number("s", "time between two reports of a rank's load"),
    "client.tool": text("load tool or SDK"),
    "client.http_library": text("its HTTP library: aiohttp, httpx, requests, ..."),
    "client.max_connections": number(
        "count", "connections of the client's pool; not set: the library's default"
    ),
    "client.tls": flag("it speaks HTTPS"),
    "client.connection_reuse": flag("it keeps connections open"),
    "client.read_buffer_kb": number("KiB", "its buffer for reading from a socket"),
    "client.processes": number("count", "processes that make load"),
    "proxy.kind": text("litellm, nginx, gateway, ..."),
    "proxy.http_library": text("library of its side towards the engine"),
    "proxy.version": text("its release"),
    "proxy.workers": number("count", "worker processes of the proxy"),
    "proxy.cpus": number("cores", "CPUs of one instance of the proxy"),
    "proxy.replicas": number("count", "instances of the proxy"),
    "proxy.max_connections": number(
        "count", "connections of the proxy to the engine; not set: the library's default"
    ),
    "proxy.max_parallel_requests": number(
        "count", "requests that the proxy lets through at once, by key or model"
    ),
    "proxy.spend_logging": flag("it writes each request's cost"),
    "proxy.db_pooler": flag("a pooler stands before its database"),
    "metering.tool": text("opencost, litellm, ..."),
    "metering.cost_basis": one_of(
        "usage", "allocation", meaning="what the report says that it charges"
    ),
    "metering.provider_prefix": text("provider before the model's name; empty: none"),
    "metering.custom_price_set": flag("the model has a price of its own"),
}
