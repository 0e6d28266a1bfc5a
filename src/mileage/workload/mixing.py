"""mixed64(): a number as 64 bits that look random, the same ones each time."""

from __future__ import annotations

from typing import Final

__all__ = ["mixed64"]

_MASK: Final = (1 << 64) - 1


def mixed64(number: int, salt: int = 0) -> int:
    """The step and finaliser of splitmix64 (Steele, Lea and Flood, OOPSLA 2014)."""
    z = (number * 0x9E3779B97F4A7C15 + salt) & _MASK
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & _MASK
    return z ^ z >> 31
