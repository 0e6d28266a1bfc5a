"""Block ids: content ids of prompt blocks, computed and not stored."""

from __future__ import annotations

from itertools import chain
from typing import Final

__all__ = ["CONTENT", "CONVERSATION", "PARTIAL", "PREFIX", "prompt_blocks"]

PREFIX: Final = 0
CONVERSATION: Final = 1
CONTENT: Final = 2
PARTIAL: Final = 3
"""What owns a block: a shared prefix, a conversation, a content; or it is the last, partial block
of one prompt, which nothing else has."""

_INDEX_BITS = 22
_OWNER_BITS = 39


def _block_range(kind: int, owner: int, begin: int, end: int) -> range:
    """Ids of the owner's blocks `begin` to `end`: 63 bits of kind, owner and place.

    Equal only for the same kind, owner and place, up to 2**22 blocks (4 million) of one owner and
    2**39 owners.
    """
    base = ((kind << _OWNER_BITS) | (owner & ((1 << _OWNER_BITS) - 1))) << _INDEX_BITS
    return range(base + begin, base + end)


def prompt_blocks(
    prompt_tokens: int,
    block_tokens: int,
    *,
    prefix: int | None,
    prefix_tokens: int,
    kind: int,
    owner: int,
    request: int | None,
) -> tuple[int, ...]:
    """Ids of a prompt's blocks: those whole in the prefix, those of its owner, a partial last one.

    A block that the prefix ends in holds the owner's tokens too, and is the owner's. So is the
    partial one where `request` is None: all prompts of the owner are the same.
    """
    whole, rest = divmod(prompt_tokens, block_tokens)
    shared = min(whole, prefix_tokens // block_tokens) if prefix is not None else 0
    blocks: chain[int] = chain(
        _block_range(PREFIX, prefix or 0, 0, shared), _block_range(kind, owner, shared, whole)
    )
    if rest and request is None:
        blocks = chain(blocks, _block_range(kind, owner, whole, whole + 1))
    elif rest and request is not None:
        blocks = chain(blocks, _block_range(PARTIAL, request, 0, 1))
    return tuple(blocks)
