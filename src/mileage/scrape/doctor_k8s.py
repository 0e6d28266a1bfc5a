"""What a cluster says of one namespace, by `kubectl get` alone: nothing is ever changed."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from mileage.core.errors import ConfigError, EngineError

__all__ = ["Cluster", "kubectl_get", "look_at_cluster"]

TIMEOUT_S: Final = 20.0
BYTES_MAX: Final = 256 * 1024 * 1024
_KEY: Final = "--k8s"
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_CORE: Final = (
    "deployments.apps,statefulsets.apps,replicasets.apps,pods,events,"
    "horizontalpodautoscalers.autoscaling"
)
_OTHERS: Final = (
    "scaledobjects.keda.sh",
    "services.serving.knative.dev",
    "inferenceservices.serving.kserve.io",
    "leaderworkersets.leaderworkerset.x-k8s.io",
)
"""Kinds that a cluster may not have."""
_ABSENT: Final = ("doesn't have a resource type", "could not find the requested resource")
_GONE: Final = ("NotFound", "not found")


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """Documents, as `kubectl get -o json` prints them, and for each that is missing why."""

    namespace: str
    name: str | None
    documents: list[Any]
    notes: dict[str, str]


def look_at_cluster(option: str, *, get: Callable[[Sequence[str]], Any] | None = None) -> Cluster:
    """Ask for what runs in NAMESPACE, or in NAMESPACE/NAME for one workload of it.

    Workloads, pods, events, autoscalers; nodes for their GPUs; Knative's configuration. Secrets and
    other ConfigMaps are not asked for.

    Raises:
        ConfigError: the option is none, there is no kubectl, or the cluster does not answer.
    """
    namespace, slash, name = option.partition("/")
    if not _NAME.fullmatch(namespace) or (slash and not _NAME.fullmatch(name)):
        raise ConfigError(_KEY, option, "NAMESPACE or NAMESPACE/NAME")
    ask = get or kubectl_get
    try:
        documents = [ask((_CORE, "-n", namespace))]
    except EngineError as error:
        raise ConfigError(_KEY, option, f"a namespace to read ({error.message})") from None
    notes: dict[str, str] = {}
    for words in (
        *((kind, "-n", namespace) for kind in _OTHERS),
        ("nodes",),
        ("configmaps", "config-autoscaler", "-n", "knative-serving"),
    ):
        try:
            documents.append(ask(words))
        except EngineError as error:
            if not any(part in error.message for part in (*_ABSENT, *_GONE)):
                notes[f"kubectl get {words[0]}"] = error.message
    return Cluster(namespace=namespace, name=name or None, documents=documents, notes=notes)


def kubectl_get(words: Sequence[str]) -> Any:
    """The answer to `kubectl get WORDS -o json`, decoded.

    Raises:
        EngineError: there is no kubectl, it takes longer than 20 s, it says why not, or what it
            prints is no JSON.
    """
    name = f"kubectl get {words[0]}"
    command = ["kubectl", "get", *words, "-o", "json", f"--request-timeout={TIMEOUT_S:g}s"]
    try:
        done = subprocess.run(  # noqa: S603 -- a list of words, no shell; names are checked
            command,
            capture_output=True,
            timeout=TIMEOUT_S + 5,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except FileNotFoundError:
        raise EngineError(name, "no kubectl on the PATH") from None
    except subprocess.TimeoutExpired:
        raise EngineError(name, f"no answer within {TIMEOUT_S:g} s") from None
    except OSError as error:
        raise EngineError(name, error.strerror or str(error)) from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise EngineError(name, (said[-1] if said else f"exit code {done.returncode}")[:300])
    if len(done.stdout) > BYTES_MAX:
        raise EngineError(name, f"more than {BYTES_MAX >> 20} MiB")
    try:
        return msgspec.json.decode(done.stdout)
    except (msgspec.DecodeError, RecursionError) as error:
        raise EngineError(name, f"no JSON ({error})") from None
