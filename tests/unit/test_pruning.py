"""When old rows are deleted: batch after batch while there are more, and then not before the interval is over."""

from __future__ import annotations

import asyncio

import pytest

from hookline_receiver.ledger.pruning import PRUNE_BATCH, pruning
from tests.support import run


@pytest.mark.parametrize(
    ("batches", "asked"),
    [([PRUNE_BATCH, PRUNE_BATCH, 1, 0], 3), ([0, 0], 1), ([PRUNE_BATCH, OSError(), 0], 2)],
)
def test_full_batches_are_followed_at_once_and_nothing_else_is(batches: list[int | OSError], asked: int) -> None:
    async def batch() -> int:
        size = left.pop(0)
        if isinstance(size, OSError):
            raise size
        return size

    async def go() -> None:
        async with pruning(batch, 3_600.0, OSError):
            for _ in range(20):
                await asyncio.sleep(0)

    left = list(batches)
    run(go())
    assert len(batches) - len(left) == asked
