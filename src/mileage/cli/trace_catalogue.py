"""The catalogue of public traces: where each is, what is known of it, and its licence."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from mileage.engines.embedded.model_cache import cache_directory

__all__ = ["CATALOGUE", "DataSet", "fetched_path", "trace_directory"]

_AZURE_2023: Final = "https://raw.githubusercontent.com/Azure/AzurePublicDataset/master/data/"
_AZURE_2024: Final = (
    "https://azurepublicdatasettraces.blob.core.windows.net/azurellminfererencetrace/"
)
_MOONCAKE: Final = (
    "https://raw.githubusercontent.com/kvcache-ai/Mooncake/main/FAST25-release/traces/"
)
_BURSTGPT: Final = "https://github.com/HPMLL/BurstGPT/releases/download/v2.0/"
_CC_BY: Final = "CC-BY-4.0"


class DataSet(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a public trace. `size_bytes` and `sha256` are None where they are not known: the
    file is then taken as it comes, if it can be read as a trace."""

    url: str
    licence: str
    about: str
    size_bytes: int | None = None
    sha256: str | None = None

    @property
    def file_name(self) -> str:
        """Its name in the cache."""
        return self.url.rpartition("/")[2]


CATALOGUE: Final[Mapping[str, DataSet]] = {
    "azure-conv-2023": DataSet(
        url=f"{_AZURE_2023}AzureLLMInferenceTrace_conv.csv",
        licence=_CC_BY,
        about="Azure LLM inference trace 2023, conversation: 19,366 requests in an hour",
        size_bytes=719_188,
        sha256="2f1e5b666d4e3055fdbba98598ce2ec307767b9064e03e2fa46676dbcc7d0bf8",
    ),
    "azure-code-2023": DataSet(
        url=f"{_AZURE_2023}AzureLLMInferenceTrace_code.csv",
        licence=_CC_BY,
        about="Azure LLM inference trace 2023, code: 8,819 requests in an hour",
        sha256="54e9a6d2a4bd06ba1e060304b900abbc74cbea53de96506e60fe5bb4f2277fb6",
    ),
    "azure-conv-2024": DataSet(
        url=f"{_AZURE_2024}AzureLLMInferenceTrace_conv_1week.csv",
        licence=_CC_BY,
        about="Azure LLM inference trace 2024, conversation: a week, over a gigabyte",
    ),
    "azure-code-2024": DataSet(
        url=f"{_AZURE_2024}AzureLLMInferenceTrace_code_1week.csv",
        licence=_CC_BY,
        about="Azure LLM inference trace 2024, code: a week, over half a gigabyte",
    ),
    "mooncake-conversation": DataSet(
        url=f"{_MOONCAKE}conversation_trace.jsonl",
        licence="Apache-2.0",
        about="Mooncake (FAST'25), conversation: 12,031 requests in an hour, with prefix blocks",
        size_bytes=3_029_533,
        sha256="b8cbb061a85206d729d91cdc2981f43c9e0d99209dce588d3af5f7934408b9df",
    ),
    "mooncake-toolagent": DataSet(
        url=f"{_MOONCAKE}toolagent_trace.jsonl",
        licence="Apache-2.0",
        about="Mooncake (FAST'25), tools and agents: 23,608 requests in an hour",
        sha256="48a2db1a13d3bc05e6330140c64f604ba366df20d3c9e128b5c35a01c1fa5f71",
    ),
    "mooncake-synthetic": DataSet(
        url=f"{_MOONCAKE}synthetic_trace.jsonl",
        licence="Apache-2.0",
        about="Mooncake (FAST'25), synthetic: 3,993 requests",
        sha256="bd070915a98fc0ed264d7cfef2ce746002eb3076a695ec31ba2674c0111ec131",
    ),
    "burstgpt": DataSet(
        url=f"{_BURSTGPT}BurstGPT_1.csv",
        licence=_CC_BY,
        about="BurstGPT v2.0, the first two months: 1.4 million requests, failed ones with them",
        size_bytes=52_283_111,
        sha256="4bb3783693d0a435686fbfc885615d2349bd067239079fa4b749f2e679e12122",
    ),
    "burstgpt-2": DataSet(
        url=f"{_BURSTGPT}BurstGPT_2.csv",
        licence=_CC_BY,
        about="BurstGPT v2.0, the second two months: 3.9 million requests",
        size_bytes=144_819_209,
        sha256="44bf5942b03fca42c01a226a545ad3a750ec62688faecd67b6831c56a8928bf7",
    ),
}


def trace_directory(environ: Mapping[str, str]) -> Path:
    """Where fetched traces are kept."""
    return cache_directory(environ) / "traces"


def fetched_path(name: str, environ: Mapping[str, str] | None = None) -> Path | None:
    """The file of a data set in the cache, whether it is there or not; None for no known name."""
    known = CATALOGUE.get(name)
    environ = os.environ if environ is None else environ
    return None if known is None else trace_directory(environ) / known.file_name
