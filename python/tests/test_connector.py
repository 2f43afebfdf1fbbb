"""The connector for paged engines, called as vLLM calls its own, on an engine that computes nothing but numbers."""

import os
import subprocess
import sys

import numpy as np
import pytest
from paged_engine import BLOCK, ELEMENTS, SHAPE, Engine, keys_of, numbers_of, open_store, vec_offsets, writer_of
from shale.connector import Scheduler
from shale.connector_options import Options
from shale.loader import BackgroundLoader
from shale.paged import PagedKv, learn_offsets


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("first, second", [("vec", "vec"), ("vec", "paired"), ("paired", "vec"), ("paired", "paired")])
def test_engines_of_any_packing_share_a_store(tmp_path, asynchronous, first, second):
    keys = keys_of("abcde", 5)
    with open_store(f"file://{tmp_path}?size=64MiB") as store:
        engine = Engine(store, first, asynchronous)
        assert engine.kv.in_place == (first == "vec")
        assert engine.serve("one", keys, [7, 3, 11, 0, 5]) == 0
        engine.finish()
        engine.worker.close()
    with open_store(f"file://{tmp_path}?size=64MiB") as store:
        engine = Engine(store, second, asynchronous)
        blocks = [2, 9, 4, 6, 1]
        assert engine.serve("two", keys, blocks) == 5
        assert engine.holds(keys, blocks)
        assert engine.worker.counted["blocks_loaded"] == 5 and engine.worker.counted["blocks_failed"] == 0
        engine.finish()
        assert engine.worker.counted["blocks_shared"] == 5, "what was loaded is not stored again"
        engine.worker.close()


def test_a_step_that_waits_for_its_load_keeps_a_token_to_compute():
    keys = keys_of("abc", 3)
    with open_store() as store:
        Engine(store).serve("one", keys, [0, 1, 2])
        store.flush()
        for asynchronous, blocks in ((False, 2), (True, 3)):
            scheduler = Scheduler(store, BLOCK, asynchronous=asynchronous, hold=None, let_go=None, evict=None)
            scheduler.add("two", lambda: keys)
            assert scheduler.found("two", 0, 3 * BLOCK) == blocks * BLOCK
            assert scheduler.found("two", BLOCK, 3 * BLOCK) == (blocks - 1) * BLOCK, "beside what the engine has itself"
            assert scheduler.found("two", 3 * BLOCK, 3 * BLOCK) == 0


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("packing", ["vec", "paired"])
@pytest.mark.parametrize("own", [1, 2, 3])
def test_a_hit_goes_on_inside_a_chunk_where_the_engine_has_its_beginning(asynchronous, packing, own, monkeypatch):
    keys, blocks, between, plain = keys_of("abcde", 5), [7, 3, 11, 0, 5], [], PagedKv.between
    monkeypatch.setattr(PagedKv, "between",
                        lambda kv, blocks, lead=0: between.append(lead + len(blocks)) or plain(kv, blocks, lead))
    with open_store() as store:
        Engine(store).serve("one", keys, [0, 1, 2, 3, 4])
        store.flush()
        engine = Engine(store, packing, asynchronous)
        engine.clear()
        between.clear()
        engine.scheduler.add("two", lambda: keys)
        assert engine.scheduler.found("two", own * BLOCK, 5 * BLOCK + 1) == (5 - own) * BLOCK
        engine.scheduler.allocated("two", blocks, (5 - own) * BLOCK)
        assert not (engine.wait_for("two") if asynchronous else engine.step(engine.scheduler.plan()))
        assert engine.holds(keys[own:], blocks[own:])
        assert (engine.kv.layers[0][blocks[:own]] == 0x7e00).all(), "others may read what the engine has itself"
        assert engine.worker.counted["blocks_loaded"] == 5 - own and engine.worker.counted["loads"] == 1
        straddling = [store.chunk_blocks] if own % store.chunk_blocks else []
        assert between == ([5 - own] if packing == "paired" else []) + straddling, "the chunk alone is copied"
        engine.worker.close()


@pytest.mark.parametrize("packing", ["vec", "paired"])
def test_copies_of_what_is_saved_hold_no_block_beyond_its_step(packing):
    keys, blocks = keys_of("abcde", 5), [2, 9, 4, 6, 1]
    with open_store() as store:
        engine = Engine(store, packing, copies=True)
        assert engine.serve("one", keys, [7, 3, 11, 0, 5]) == 0
        assert engine.held == [] and engine.worker.counted["saves_cancelled"] == 0
        engine.clear()
        engine.finish()
        assert engine.serve("two", keys, blocks) == 5 and engine.holds(keys, blocks)


def test_a_request_is_saved_as_it_grows_and_each_block_once():
    keys = keys_of("abcd", 4)
    with open_store() as store:
        engine = Engine(store)
        known = keys[:2]
        engine.scheduler.add("one", lambda: known)
        engine.scheduler.computing("one", [4, 5, 6], 0, 2 * BLOCK + 7)
        plan = engine.scheduler.plan()
        assert [(job.first, job.last) for job in plan.saves] == [(0, 2)] and engine.held == [4, 5]
        engine.step(plan, zip(keys[:2], [4, 5]))
        engine.scheduler.computing("one", [8], 2 * BLOCK + 7, 3 * BLOCK)
        plan = engine.scheduler.plan()
        assert plan.saves == [], "the third block has no key before its tokens are all known"
        engine.step(plan, [(keys[2], 6)])
        known = keys
        engine.scheduler.computing("one", (), 3 * BLOCK, 4 * BLOCK)
        plan = engine.scheduler.plan()
        assert [(job.first, job.last) for job in plan.saves] == [(2, 4)]
        engine.step(plan, [(keys[3], 8)])
        engine.finish()
        assert store.lookup(keys).blocks == 4


@pytest.mark.parametrize("method, quality", [("int8", 0.99), ("kivi4", 0.95)])
def test_lossy_blocks_are_for_those_who_ask_and_leave_nothing_behind(method, quality):
    keys, longer = keys_of("abcd", 4), keys_of("abcdef", 6)
    with open_store() as store:
        engine = Engine(store, method=method, quality=quality, floor=0.9)
        engine.serve("one", keys, [0, 1, 2, 3])
        engine.finish()
        engine.clear()
        assert engine.serve("exact", keys, [0, 1, 2, 3]) == 0, "exact requests never see them"
        engine.finish()
        saves = engine.worker.counted["saves"]
        assert engine.serve("lossy", longer, [5, 6, 7, 8, 9, 10], lossy=True) == 4
        assert engine.worker.counted["blocks_lossy"] == 4
        near = engine.kv.layers[0][5][engine.kv.offsets].view(np.float16).astype(float)
        assert 0 < np.abs(near - numbers_of(keys[0], 0).view(np.float16)).max() < 1
        engine.finish()
        store.flush()
        assert engine.worker.counted["saves"] == saves
        assert store.lookup(longer, lossy=True).blocks == 4, "nothing computed on them was saved"
        strict = Engine(store, method=method, quality=quality, floor=1.0)
        assert strict.serve("lossy", keys, [0, 1, 2, 3], lossy=True) == 0


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_worker_finds_what_its_scheduler_found_in_another_process(tmp_path, asynchronous):
    tiers = f"dir://{tmp_path}?name=shared"
    keys = keys_of("abcde", 5)
    with open_store(tiers) as store:
        Engine(store, asynchronous=asynchronous).serve("one", keys, list(range(5)))
        store.flush()
    with open_store(tiers) as schedulers, open_store(tiers) as workers:
        engine = Engine(schedulers, asynchronous=asynchronous, workers_store=workers)
        assert engine.serve("two", keys, [5, 6, 7, 8, 9]) == 5
        assert engine.worker.counted["blocks_failed"] == 0
        assert engine.holds(keys, [5, 6, 7, 8, 9])
        engine.finish()
        engine.worker.close()


@pytest.mark.parametrize("given, part", [
    ({}, "tiers"),
    ({"tires": "memory:"}, "did you mean 'tiers'"),
    ({"tiers": "memory:?size=1MiB", "load": "lazily"}, "async or sync"),
    ({"tiers": "memory:?size=1MiB", "method": "keydiff"}, "keeps every token"),
    ({"tiers": "memory:?size=1MiB", "method": "int8"}, "floor"),
    ({"tiers": "memory:?size=1MiB", "method": "int8", "floor": 0.9}, "quality"),
    ({"tiers": "memory:?size=1MiB", "method": "int8", "floor": 0.9, "profile": "/nowhere"}, "/nowhere"),
    ({"tiers": "memory:?size=1MiB", "floor": 2}, "from 0 to 1"),
    ({"tiers": "memory:?size=1MiB", "staging": "much"}, "256MiB"),
    ({"tiers": "memory:?size=1MiB", "load_timeout_s": 0}, "seconds"),
    ({"tiers": "memory:?size=1MiB", "model": 7}, "model 7: give a text"),
    ({"tiers": "memory:?size=1MiB", "tenant": 7}, "tenant 7: give a text"),
    ({"tiers": "memory:?size=1MiB", "profile": 7}, "profile 7: give a text"),
    ({"tiers": "memory:?size=1MiB", "lossy_salt": None}, "lossy_salt None: give a text"),
])
def test_bad_options_are_named(given, part):
    with pytest.raises(ValueError, match=part):
        Options.parse(given)


def test_options_are_taken():
    options = Options.parse({"tiers": ["memory:?size=1MiB", "file:///kv?size=1GiB"], "method": "int8", "quality": 0.99,
                             "floor": 0.9, "staging": "1GiB"})
    assert options.tiers == "memory:?size=1MiB,file:///kv?size=1GiB" and options.staging_bytes == 1 << 30


def test_a_cache_that_keeps_less_than_it_is_given_is_refused():
    def write(keys, values):
        return writer_of(vec_offsets())(keys, values) // 2 * 2

    with pytest.raises(ValueError, match="did not keep"):
        learn_offsets(write, ELEMENTS, SHAPE)


def test_what_was_not_added_or_is_forgotten_is_neither_looked_up_nor_saved():
    with open_store() as store:
        engine = Engine(store)
        keys = keys_of("a", 4)
        engine.scheduler.add("a", lambda: keys)
        for request in ("another", "a"):
            engine.scheduler.forget()
            assert engine.scheduler.found(request, 0, 4 * BLOCK) == 0
            engine.scheduler.computing(request, [0, 1, 2, 3], 0, 4 * BLOCK)
            assert not engine.scheduler.saving and not engine.scheduler.plan().saves


def test_the_loaders_thread_ends_before_the_program():
    ended = subprocess.run([sys.executable, "-c", """
import atexit
import shale
from shale.loader import BackgroundLoader
atexit.register(lambda: print(loader._thread.is_alive()))  # called after what is registered later
store = shale.Store("test", "memory:?size=1MiB", layers=1, kv_heads=1, head_dim=32)
loader = BackgroundLoader(store)
print(loader._thread.is_alive())
"""], check=True, capture_output=True, text=True, timeout=120)
    assert ended.stdout.split() == ["True", "False"]


def test_an_engine_may_load_without_saving_and_save_without_loading():
    keys, longer, blocks = keys_of("abc", 3), keys_of("abcde", 5), [3, 4, 5, 6, 7]
    with open_store() as store:
        producer, consumer = Engine(store, loads=False), Engine(store, saves=False)
        assert producer.serve("one", keys, blocks[:3]) == 0
        producer.finish()
        assert producer.serve("two", keys, blocks[:3]) == 0, "it computes what is there"
        producer.finish()
        assert consumer.serve("three", longer, blocks) == 3 and consumer.holds(longer, blocks)
        consumer.finish()
        assert consumer.worker.counted["saves"] == 0 and store.lookup(longer).blocks == 3


class Ended:
    """A load that is over."""

    def wait_s(self, most_s):
        return most_s

    def poll(self):
        return True


def test_a_loader_whose_store_was_closed_reads_of_nobody_else():
    read_end, write_end = os.pipe()
    with open_store() as store:
        loader, event_fd = BackgroundLoader(store), store.event_fd
        loader.add(Ended())
        while not loader.ended(1.0):
            pass
    os.dup2(read_end, event_fd)  # the number is free
    os.write(write_end, b"somebody's")
    loader.close()
    os.set_blocking(read_end, False)
    assert os.read(read_end, 100) == b"somebody's"
    for descriptor in (read_end, write_end, event_fd):
        os.close(descriptor)
