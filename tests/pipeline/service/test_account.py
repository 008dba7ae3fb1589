"""A worker's sums, on planted times."""

from __future__ import annotations

from unstall.pipeline.service.account import Ledger, read_account


class Clock:
    def __init__(self) -> None:
        self.time_ns = 1000

    def now_ns(self) -> int:
        return self.time_ns

    def advance(self, passed_ns: int) -> None:
        self.time_ns += passed_ns


def ledger_with_clock() -> tuple[Ledger, Clock]:
    clock = Clock()
    return Ledger(now=clock.now_ns, cpu=lambda: clock.now_ns() // 2), clock


def test_an_account_holds_images_and_cpu_time():
    ledger, clock = ledger_with_clock()
    ledger.planned(0)
    clock.advance(100)
    account = ledger.finished(32)
    assert (account.images, account.up_ns, account.split_wait_ns) == (32, 100, 0)
    assert account.cpu_ns == clock.now_ns() // 2


def test_it_survives_its_text():
    ledger, _ = ledger_with_clock()
    ledger.planned(0)
    account = ledger.finished(1)
    assert read_account(account.text()) == account


def test_a_pause_before_another_chunk_is_split_wait():
    ledger, clock = ledger_with_clock()
    ledger.planned(7)
    ledger.finished(32)
    clock.advance(50)
    ledger.planned(16)
    assert ledger.finished(32).split_wait_ns == 50


def test_a_pause_within_a_chunk_is_not():
    ledger, clock = ledger_with_clock()
    ledger.planned(6)
    ledger.finished(32)
    clock.advance(50)
    ledger.planned(7)
    assert ledger.finished(32).split_wait_ns == 0


def test_nor_is_a_chunk_that_comes_while_another_batch_is_made():
    ledger, clock = ledger_with_clock()
    ledger.planned(7)
    clock.advance(50)
    ledger.planned(16)
    ledger.finished(32)
    assert ledger.finished(32).split_wait_ns == 0
