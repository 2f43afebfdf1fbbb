"""The connector for paged engines where tiers, disks or the engine fail."""

import time

import pytest
from paged_engine import BLOCK, Engine, damage, keys_of, open_store
from shale import Load, Save


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
        engine.scheduler.computing("two", blocks, 5 * BLOCK)
        first = engine.scheduler.plan()
        engine.scheduler.computing("two", blocks, 6 * BLOCK)  # an engine that is a step ahead of what it knows
        second = engine.scheduler.plan()
        # Another request found the loading blocks in the engine's own prefix cache.
        assert engine.step(first, [(garbage[0], blocks[4])])
        engine.step(second, [(garbage[0], blocks[5])])
        assert engine.worker.counted["saves_cancelled"] == 2
        store.flush()
        assert store.lookup(keys).blocks < 4
        # Now the scheduler knows: the blocks are computed anew, and saved.
        engine.scheduler.computing("two", blocks, 6 * BLOCK + 1)
        assert not engine.step(engine.scheduler.plan(), list(zip(keys, blocks)))
        engine.finish()
        store.flush()
        engine.clear()
        assert engine.serve("three", keys, blocks) == 6 and engine.holds(keys, blocks)


def test_a_full_store_costs_the_engine_nothing(tmp_path):
    keys = keys_of("abcdefgh", 8)
    with open_store(f"file://{tmp_path}?size=16KiB") as store:
        engine = Engine(store)
        assert engine.serve("one", keys, list(range(8))) == 0
        engine.finish()
        assert store.lookup(keys).blocks < 8
        assert engine.serve("two", keys, list(range(8, 16))) < 8 and engine.holds(keys, list(range(8, 16)))


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
    with open_store() as store:
        engine = Engine(store)

        class Ended:
            released, done, shared_blocks = False, True, 0

            def wait(self):
                pass

        engine.worker._saves = [(7, Ended(), None, float("inf"))]
        engine.worker._follow_saves()
        assert engine.worker.report().released == [7]


def test_a_save_that_no_tier_takes_lets_go_of_its_blocks(monkeypatch):
    keys, blocks = keys_of("abc", 3), [3, 4, 5]
    with open_store() as store:
        engine = Engine(store)
        monkeypatch.setattr(engine.worker, "HOLD_S", 0.0)
        monkeypatch.setattr(Save, "done", property(lambda save: False))
        monkeypatch.setattr(Save, "released", property(lambda save: False))
        engine.scheduler.add("one", lambda: keys)
        engine.scheduler.computing("one", blocks, 3 * BLOCK)
        engine.step(engine.scheduler.plan(), list(zip(keys, blocks)))
        assert sorted(engine.held) == blocks and engine.scheduler.holds == {3: 1, 4: 1, 5: 1}
        engine.step(engine.scheduler.plan())
        assert engine.worker.counted["saves_late"] == 1
        monkeypatch.undo()
        engine.finish()
        assert not engine.scheduler.holds
