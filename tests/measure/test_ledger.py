from pathlib import Path

import pytest

from meshrec.measure.ledger import Entry, Ledger


def test_calls_and_bytes_add_up_by_name():
    ledger = Ledger()
    ledger.add("input_exchange", "shard", 100)
    ledger.add("sync_rows", "replicate", 7.5)
    ledger.add("input_exchange", "shard", 20)
    assert ledger.entries == {"input_exchange": Entry("shard", 2, 120), "sync_rows": Entry("replicate", 1, 7.5)}


def test_a_call_that_sends_nothing_is_a_call():
    ledger = Ledger()
    ledger.add("dense_all_reduce", "world", 0)
    assert ledger.entries == {"dense_all_reduce": Entry("world", 1, 0.0)}


def test_nothing_counts_while_it_is_closed():
    ledger = Ledger()
    ledger.add("input_exchange", "shard", 1)
    with ledger.closed():
        ledger.add("input_exchange", "shard", 10)
        ledger.add("sync_rows", "replicate", 10)
    ledger.add("input_exchange", "shard", 100)
    assert ledger.entries == {"input_exchange": Entry("shard", 2, 101)}


def test_closing_within_closing_stays_closed_until_the_outer_end():
    ledger = Ledger()
    with ledger.closed():
        with ledger.closed():
            pass
        ledger.add("input_exchange", "shard", 10)
    assert ledger.entries == {}
    assert ledger.is_open


def test_an_error_opens_it_again():
    ledger = Ledger()
    with pytest.raises(FileNotFoundError), ledger.closed():
        Path("/no/such/file").read_text()
    ledger.add("input_exchange", "shard", 1)
    assert ledger.entries == {"input_exchange": Entry("shard", 1, 1)}


def test_ledgers_share_nothing():
    Ledger().add("input_exchange", "shard", 1)
    assert Ledger().entries == {}
