"""The connector for paged engines where tiers, disks or the engine fail."""

import collections
import gc
import os
import resource
import time
import types

import numpy as np
import pytest
from paged_engine import BLOCK, Engine, blobs, damage, keys_of, open_store
from shale import Load, Save
from shale.connector import Worker
from shale.paged import PagedKv
from shale.saver import Saver


@pytest.mark.parametrize("asynchronous", [False, True])
def test_damage_is_computed_anew_and_stored_sound(tmp_path, asynchronous):
    keys = keys_of("abcdef", 6)
    tiers = f"file://{tmp_path}?size=64MiB"
    with open_store(tiers) as store:
        Engine(store).serve("one", keys, list(range(6)))
        store.flush()
    damage(tmp_path)
    with open_store(tiers) as store:
        engine, blocks = Engine(store, asynchronous=asynchronous), [9, 8, 7, 6, 5, 4]
        assert engine.serve("two", keys, blocks) == 6
        assert engine.worker.counted["blocks_failed"] > 0 and engine.holds(keys, blocks)
        engine.finish()
        store.flush()
        engine.clear()
        assert engine.serve("three", keys, blocks) == 6
        assert engine.holds(keys, blocks), "the recomputed blocks were stored, and are sound"
        engine.worker.close()


def test_nothing_is_saved_that_was_computed_on_blocks_that_did_not_come(tmp_path):
    keys = keys_of("abcdef", 6)
    tiers = f"file://{tmp_path}?size=64MiB"
    with open_store(tiers) as store:
        Engine(store).serve("one", keys[:4], [0, 1, 2, 3])
        store.flush()
    damage(tmp_path)
    with open_store(tiers) as store:
        engine, blocks, garbage = Engine(store), [9, 8, 7, 6, 5, 4], [b"garbage".ljust(32, b"!")] * 6
        engine.scheduler.add("two", lambda: keys)
        assert engine.scheduler.found("two", 0, 6 * BLOCK + 1) == 4 * BLOCK
        engine.scheduler.allocated("two", blocks, 4 * BLOCK)
        engine.scheduler.computing("two", blocks, 4 * BLOCK, 5 * BLOCK)
        first = engine.scheduler.plan()
        engine.scheduler.computing("two", (), 5 * BLOCK, 6 * BLOCK)  # an engine that is a step ahead
        second = engine.scheduler.plan()
        # Another request found the loading blocks in the engine's own prefix cache.
        assert engine.step(first, [(garbage[0], blocks[4])])
        engine.step(second, [(garbage[0], blocks[5])])
        assert engine.worker.counted["saves_cancelled"] == 2
        store.flush()
        assert store.lookup(keys).blocks < 4
        # Now the scheduler knows: the blocks are computed anew, and saved.
        engine.scheduler.computing("two", [3], 0, 6 * BLOCK + 1)
        plan = engine.scheduler.plan()
        assert [(job.first, job.last, job.keys) for job in plan.saves] == [(0, 6, b"")], "the worker knows the keys"
        assert not engine.step(plan, list(zip(keys, blocks)))
        engine.finish()
        store.flush()
        engine.clear()
        assert engine.serve("three", keys, blocks) == 6 and engine.holds(keys, blocks)


GARBAGE = b"garbage".ljust(32, b"!")


def fails(engine, keys, blocks):
    """A step whose load fails, of which the request's blocks behind were computed on; the first one that failed."""
    engine.scheduler.add("two", lambda: keys)
    loaded = engine.scheduler.found("two", 0, len(keys) * BLOCK) // BLOCK
    engine.scheduler.allocated("two", blocks, loaded * BLOCK)
    engine.scheduler.computing("two", blocks, loaded * BLOCK, len(keys) * BLOCK)
    failed = engine.step(engine.scheduler.plan(), [(GARBAGE, block) for block in blocks[loaded:]])
    assert engine.evicted == failed | set(blocks[loaded:]), "nobody finds them in the engine's own cache"
    return min(blocks.index(block) for block in failed)


@pytest.fixture
def damaged(tmp_path):
    keys, tiers = keys_of("abcdef", 6), f"file://{tmp_path}?size=64MiB"
    with open_store(tiers) as store:
        Engine(store).serve("one", keys[:4], [0, 1, 2, 3])
        store.flush()
    damage(tmp_path)
    with open_store(tiers) as store:
        yield store


def test_what_failed_is_not_saved_when_its_request_ends_before_it_is_computed_anew(damaged):
    keys, blocks, engine = keys_of("abcdefg", 7), [9, 8, 7, 6, 5, 4, 3], Engine(damaged)
    first = fails(engine, keys[:6], blocks[:6])
    engine.scheduler.finished("two")
    # Two others share its blocks, of which one is never saved.
    engine.scheduler.add("three", lambda: keys)
    engine.scheduler.computing("three", blocks, 6 * BLOCK, 7 * BLOCK)
    engine.scheduler.computing("not added", [*blocks[:6], 11], 6 * BLOCK, 6 * BLOCK + 1)
    cancelled = engine.worker.counted["saves_cancelled"]
    engine.step(engine.scheduler.plan(), [(GARBAGE, 3), (GARBAGE, 11)])
    assert engine.worker.counted["saves_cancelled"] == cancelled + 1 and {3, 11} <= engine.evicted
    engine.finish()
    damaged.flush()
    assert damaged.lookup(keys).blocks <= first
    engine.scheduler.finished("three")
    assert engine.serve("four", keys, blocks) <= first
    engine.finish()
    damaged.flush()
    assert damaged.lookup(keys).blocks == 7, "computed anew, they are saved"


def test_a_block_is_garbage_until_all_of_it_is_computed_anew(damaged):
    keys, blocks, engine = keys_of("abcdef", 6), [9, 8, 7, 6, 5, 4], Engine(damaged)
    first = fails(engine, keys, blocks)
    inside = first * BLOCK + BLOCK // 2
    engine.scheduler.computing("two", (), first * BLOCK, inside)
    other = keys_of("abcdef"[:first + 1] + "xyz", first + 3)
    engine.scheduler.add("other", lambda: other)
    shared = [*blocks[:first + 1], 12, 13]
    engine.scheduler.computing("other", shared, (first + 1) * BLOCK, (first + 2) * BLOCK)
    engine.step(engine.scheduler.plan(), [(GARBAGE, 12)])
    # The rest is computed anew; the other goes on upon what it computed on half a block.
    engine.scheduler.computing("two", (), inside, 6 * BLOCK)
    engine.scheduler.computing("other", (), (first + 2) * BLOCK, (first + 3) * BLOCK)
    engine.step(engine.scheduler.plan(), [*list(zip(keys, blocks))[first:], (GARBAGE, 13)])
    engine.finish()
    damaged.flush()
    assert damaged.lookup(keys).blocks == 6 and damaged.lookup(other).blocks == first + 1
    assert {12, 13} <= engine.evicted
    engine.clear()
    assert engine.serve("three", keys, blocks, extra_tokens=1) == 6 and engine.holds(keys, blocks)


def test_a_full_store_costs_the_engine_nothing(tmp_path):
    keys = keys_of("abcdefgh", 8)
    with open_store(f"file://{tmp_path}?size=16KiB") as store:
        engine = Engine(store)
        assert engine.serve("one", keys, list(range(8))) == 0
        engine.finish()
        assert store.lookup(keys).blocks < 8
        assert engine.serve("two", keys, list(range(8, 16))) < 8 and engine.holds(keys, list(range(8, 16)))


def test_what_fails_is_logged_and_not_at_once_again(tmp_path, caplog, monkeypatch):
    keys, folder = keys_of("abcd", 4), tmp_path / "kv"
    with open_store(f"file://{folder}?size=16KiB") as store:
        engine = Engine(store)
        for _ in range(2):
            engine.serve("one", keys, [0, 1, 2, 3])
            engine.finish()
        assert engine.worker.counted["saves_failed"] == 2 and len(caplog.records) == 1
        assert "not saved" in caplog.text and "room" in caplog.text
    with open_store(f"file://{folder}?size=64MiB") as store:
        Engine(store).serve("one", keys, [0, 1, 2, 3])
        store.flush()
        damage(folder)
        engine = Engine(store)
        engine.serve("two", keys, [0, 1, 2, 3])
        assert len(caplog.records) == 2 and "not loaded" in caplog.messages[1]
        monkeypatch.setattr(engine.worker, "SILENT_S", 0)
        engine.worker._silent_until.clear()
        for _ in range(2):
            engine.worker._warn("blocks were not loaded", "tape torn")
        assert len(caplog.records) == 4


def test_a_method_that_the_model_cannot_be_stored_by_is_refused_at_the_start():
    offsets = np.arange(2 * BLOCK * 80).reshape(2, BLOCK, 1, 80)
    kv = PagedKv([np.zeros((4, offsets.size), np.uint16)], offsets)
    with open_store() as store:
        Worker(store, kv, asynchronous=False)
        with pytest.raises(ValueError, match="int8.*multiples of 32, not 80"):
            Worker(store, kv, asynchronous=False, method="int8")


@pytest.fixture
def many_descriptors():
    """Those that are opened from here on have numbers beyond what select() takes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2048:
        pytest.skip(f"a process may have {hard} descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (2048, hard))
    gc.collect()  # else stores of earlier tests, which errors still refer to, give theirs back later
    opened = [os.open(os.devnull, os.O_RDONLY)]
    while opened[-1] < 1024:
        opened.append(os.open(os.devnull, os.O_RDONLY))
    yield
    for descriptor in opened:
        os.close(descriptor)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("asynchronous", [False, True])
def test_loads_come_where_the_process_has_many_files_open(many_descriptors, asynchronous, monkeypatch):
    keys, blocks, waits = keys_of("abc", 3), [3, 4, 5], iter([False, False])
    with open_store() as store:
        assert store.event_fd > 1023
        Engine(store).serve("one", keys, [0, 1, 2])
        store.flush()
        engine, poll = Engine(store, asynchronous=asynchronous), Load.poll
        monkeypatch.setattr(Load, "poll", lambda load: next(waits, True) and poll(load))  # it has to be waited for
        assert engine.serve("two", keys, blocks) == 3
        assert engine.worker.counted["blocks_loaded"] == 3 and engine.holds(keys, blocks)
        engine.worker.close()


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_load_that_ends_in_whatever_error_is_computed(asynchronous, monkeypatch):
    keys, blocks = keys_of("abc", 3), [3, 4, 5]
    with open_store() as store:
        Engine(store).serve("one", keys, [0, 1, 2])
        store.flush()
        engine = Engine(store, asynchronous=asynchronous)
        with monkeypatch.context() as broken:
            broken.setattr(Load, "runs", property(lambda load: 1 / 0))
            assert engine.serve("two", keys, blocks) == 3
        assert engine.worker.counted["blocks_failed"] == 3 and engine.holds(keys, blocks)
        assert engine.serve("three", keys, [6, 7, 8]) == 3 and engine.worker.counted["blocks_loaded"] == 3
        engine.worker.close()


def test_a_late_load_is_given_up_and_not_tried_again(monkeypatch):
    keys, blocks = keys_of("abc", 3), [3, 4, 5]
    with open_store() as store:
        Engine(store).serve("one", keys, [0, 1, 2])
        store.flush()
        engine = Engine(store, timeout_s=0.01)
        engine.scheduler.add("two", lambda: keys)
        tokens = 3 * BLOCK + 1
        assert engine.scheduler.found("two", 0, tokens) == 3 * BLOCK
        engine.scheduler.allocated("two", blocks, 3 * BLOCK)
        monkeypatch.setattr(Load, "poll", lambda load: time.sleep(0.02))  # a tier that never answers
        assert engine.step(engine.scheduler.plan()) == set(blocks)
        assert engine.worker.counted["loads_late"] == engine.worker.counted["loads_overdue"] == 1
        assert engine.scheduler.found("two", 0, tokens) == 0, "it is computed"
        monkeypatch.undo()
        engine.scheduler.finished("two")
        engine.scheduler.add("three", lambda: keys)
        assert engine.scheduler.found("three", 0, tokens) == 3 * BLOCK, "others try"


def load_behind_own(engine, keys, blocks, own=1):
    """A step of a request whose first blocks the engine has itself; the blocks that failed."""
    engine.scheduler.add("two", lambda: keys)
    assert engine.scheduler.found("two", own * BLOCK, len(keys) * BLOCK + 1) == (len(keys) - own) * BLOCK
    engine.scheduler.allocated("two", blocks, (len(keys) - own) * BLOCK)
    return engine.step(engine.scheduler.plan())


@pytest.mark.parametrize("where", ["in the chunk that begins before", "behind it"])
def test_damage_fails_its_own_blocks_where_a_hit_goes_on_inside_a_chunk(tmp_path, caplog, where):
    keys, blocks, tiers = keys_of("abcde", 5), [7, 3, 11, 0, 5], f"file://{tmp_path}?size=64MiB"
    with open_store(tiers) as store:
        Engine(store).serve("one", keys[:2], blocks[:2])
        store.flush()
        first = blobs(tmp_path)
        Engine(store).serve("one", keys, blocks)
        store.flush()
    damage(first if where != "behind it" else blobs(tmp_path) - first)
    with open_store(tiers) as store:
        engine = Engine(store)
        failed = load_behind_own(engine, keys, blocks)
        assert failed == {3} if where != "behind it" else failed and failed <= {11, 0, 5}
        sound = [at for at in range(1, 5) if blocks[at] not in failed]
        assert engine.holds([keys[at] for at in sound], [blocks[at] for at in sound])
        assert "not loaded" in caplog.text and "begins before" not in caplog.text


@pytest.mark.parametrize("straddling", [False, True])
def test_nothing_is_written_any_more_when_one_of_two_loads_is_late(monkeypatch, straddling):
    keys, blocks, loads, poll = keys_of("abcde", 5), [7, 3, 11, 0, 5], [], Load.poll

    def hangs(load):
        loads.append(load)
        if (load._view._arrays is not None) == straddling:
            return time.sleep(0.02)
        return poll(load)

    with open_store() as store:
        Engine(store).serve("one", keys, blocks)
        store.flush()
        engine = Engine(store, timeout_s=0.01)
        monkeypatch.setattr(Load, "poll", hangs)
        assert load_behind_own(engine, keys, blocks) == set(blocks[1:])
        monkeypatch.undo()
        engine.clear()
        assert len(set(loads)) == 2 and all(load.poll() for load in loads)
        assert all((layer == 0x7e00).all() for layer in engine.kv.layers), "the engine computes there"


def test_layers_are_there_once_both_loads_have_brought_them(monkeypatch):
    keys, blocks, waits, poll = keys_of("abcde", 5), [7, 3, 11, 0, 5], iter(3 * [False]), Load.poll
    with open_store() as store:
        Engine(store).serve("one", keys, [0, 1, 2, 3, 4])
        store.flush()
        engine = Engine(store)
        monkeypatch.setattr(Load, "poll", lambda load: (load._view._arrays is None or next(waits, True)) and poll(load))
        assert not load_behind_own(engine, keys, blocks) and next(waits, True)
        assert engine.holds(keys[1:], blocks[1:])


def test_a_load_for_which_memory_is_lacking_is_computed(monkeypatch):
    keys, blocks = keys_of("abcde", 5), [7, 3, 11, 0, 5]

    def lacking(*_, **more):
        raise MemoryError

    with open_store() as store:
        Engine(store).serve("one", keys, blocks)
        store.flush()
        engine = Engine(store)
        monkeypatch.setattr(PagedKv, "between", lacking)
        assert load_behind_own(engine, keys, blocks) == set(blocks[1:])


def test_blocks_that_failed_are_told_of_before_saves_begin(tmp_path):
    keys, blocks = keys_of("abc", 3), [3, 4, 5]
    with open_store(f"file://{tmp_path}?size=64MiB") as store:
        Engine(store).serve("one", keys, [0, 1, 2])
        store.flush()
        damage(tmp_path)
        engine = Engine(store)
        engine.scheduler.add("two", lambda: keys)
        assert engine.scheduler.found("two", 0, 3 * BLOCK + 1) == 3 * BLOCK
        engine.scheduler.allocated("two", blocks, 3 * BLOCK)
        assert blocks[0] in engine.step(engine.scheduler.plan(), saves_later=True)


def test_a_save_that_ends_while_it_is_looked_at_lets_go_of_its_blocks():
    class Ended:
        released, done, shared_blocks = False, True, 0

        def wait(self):
            pass

    saver = Saver(types.SimpleNamespace(save=lambda *_, **options: Ended()), collections.Counter(), pytest.fail)
    saver.add(7, [], 0, types.SimpleNamespace(view=None, copied=False))
    saver.follow()
    assert saver.take_released() == ([], [7]) and not saver.saving


@pytest.mark.parametrize("packing", ["vec", "paired"])
def test_a_save_that_no_tier_takes_lets_go_of_its_blocks_and_of_copies(monkeypatch, packing):
    keys, blocks = keys_of("abc", 3), [3, 4, 5]
    with open_store() as store:
        engine = Engine(store, packing)
        monkeypatch.setattr(Save, "done", property(lambda save: False))
        monkeypatch.setattr(Save, "released", property(lambda save: False))
        engine.scheduler.add("one", lambda: keys)
        engine.scheduler.computing("one", blocks, 0, 3 * BLOCK)
        engine.step(engine.scheduler.plan(), list(zip(keys, blocks)))
        assert sorted(engine.held) == (blocks if packing == "vec" else []) and engine.scheduler.saving
        assert engine.scheduler.holds == {block: 1 for block in engine.held}
        (save,) = engine.worker._saver._saves
        save.until = 0.0
        engine.step(engine.scheduler.plan())
        assert engine.worker.counted["saves_late"] == 1 and not engine.scheduler.saving
        assert save.run is save.save._view is None
        monkeypatch.undo()
        engine.finish()
        assert not engine.scheduler.holds


def test_a_copy_is_let_go_of_once_it_was_read(monkeypatch):
    keys, blocks = keys_of("abc", 3), [3, 4, 5]
    with open_store() as store:
        engine = Engine(store, "paired")
        monkeypatch.setattr(Save, "done", property(lambda save: False))
        assert engine.serve("one", keys, blocks) == 0
        while engine.scheduler.saving:
            engine.step(engine.scheduler.plan(idle=True))
        (save,) = engine.worker._saver._saves
        assert save.run is None and save.save._view is None
