"""Amount and UseSums: what is summed for an account: GPU time, its money and what it was for."""

from __future__ import annotations

from mileage.control.gpu_meter import split
from mileage.ledger.usage_row import UsageRow

__all__ = ["Amount", "UseSums", "shared_amount"]


class Amount:
    """GPU time and its price. `nano_usd` is of what has a price; `unpriced_ns` is what has none."""

    __slots__ = ("gpu_ns", "nano_usd", "unpriced_ns")

    def __init__(self, gpu_ns: int = 0, nano_usd: int = 0, unpriced_ns: int = 0) -> None:
        self.gpu_ns, self.nano_usd, self.unpriced_ns = gpu_ns, nano_usd, unpriced_ns

    def add(self, gpu_ns: int, nano_usd: int | None) -> None:
        """Add GPU time and what it costs; None: it has no price."""
        self.gpu_ns += gpu_ns
        if nano_usd is None:
            self.unpriced_ns += gpu_ns
        else:
            self.nano_usd += nano_usd

    def take(self, other: Amount) -> None:
        """Add another one."""
        self.gpu_ns += other.gpu_ns
        self.nano_usd += other.nano_usd
        self.unpriced_ns += other.unpriced_ns

    def give(self, other: Amount) -> None:
        """Take another one out of it."""
        self.gpu_ns -= other.gpu_ns
        self.nano_usd -= other.nano_usd
        self.unpriced_ns -= other.unpriced_ns

    @property
    def whole_nano_usd(self) -> int | None:
        """The price of all of it; None where a part has none."""
        return None if self.unpriced_ns else self.nano_usd


def shared_amount(amount: Amount, weights: list[int]) -> list[Amount]:
    """The amount in parts by the weights: GPU time, money and what has no price, each exactly."""
    return [
        Amount(gpu_ns, nano_usd, unpriced_ns)
        for gpu_ns, nano_usd, unpriced_ns in zip(
            split(amount.gpu_ns, weights),
            split(amount.nano_usd, weights),
            split(amount.unpriced_ns, weights),
            strict=True,
        )
    ]


class UseSums(Amount):
    """Sums over rows of usage. `prefill_ns`, `decode_ns`, `recomputed_ns` and `failed_ns` are parts
    of `gpu_ns` that sum to it: what failed requests used is in the last one alone."""

    __slots__ = (
        "cached_tokens",
        "decode_ns",
        "failed_ns",
        "high_ns",
        "low_ns",
        "output_tokens",
        "prefill_ns",
        "prompt_tokens",
        "recomputed_ns",
        "requests",
        "requests_failed",
        "saturated_ns",
    )

    def __init__(self) -> None:
        super().__init__()
        self.requests = self.requests_failed = 0
        self.prompt_tokens = self.cached_tokens = self.output_tokens = 0
        self.low_ns = self.high_ns = self.saturated_ns = 0
        self.prefill_ns = self.decode_ns = self.recomputed_ns = self.failed_ns = 0

    def add_row(self, row: UsageRow, nano_usd: int | None) -> None:
        """Add a row, and what its GPU time costs."""
        gpu_ns = row.gpu_ns
        self.add(gpu_ns, nano_usd)
        self.requests += row.requests
        self.requests_failed += row.requests_failed
        self.prompt_tokens += row.prompt_tokens
        self.cached_tokens += row.cached_tokens
        self.output_tokens += row.output_tokens
        self.low_ns += row.low_ns
        self.high_ns += row.high_ns
        self.saturated_ns += row.saturated_ns
        prefill_ns = min(row.prefill_ns, gpu_ns)
        recomputed_ns = min(row.recomputed_ns, prefill_ns)
        prefill_ns -= recomputed_ns
        decode_ns = gpu_ns - prefill_ns - recomputed_ns
        failed_ns = min(row.failed_ns, gpu_ns)
        if failed_ns:
            # What failed requests had computed is not told apart: as much of each kind as of all.
            parts = split(gpu_ns - failed_ns, [prefill_ns, decode_ns, recomputed_ns])
            prefill_ns, decode_ns, recomputed_ns = parts
            self.failed_ns += failed_ns
        self.prefill_ns += prefill_ns
        self.decode_ns += decode_ns
        self.recomputed_ns += recomputed_ns

    def take_all(self, other: UseSums) -> None:
        """Add all of another one."""
        self.take(other)
        for name in UseSums.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))
