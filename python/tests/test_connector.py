"""The connector for paged engines, called as vLLM calls its own, on an engine that computes nothing but numbers."""

import json
import pickle
import time

import numpy as np
import pytest
from shale import Load, Save, Store
from shale.connector import Scheduler, Worker
from shale.connector_options import Options
from shale.model_identity import named_weights, stamps, weights_identity
from shale.paged import PagedKv, learn_offsets

LAYERS, HEADS, DIM, BLOCK, BLOCKS = 3, 2, 32, 32, 24
SHAPE = (BLOCK, HEADS, DIM)
ELEMENTS = 2 * BLOCK * HEADS * DIM


def vec_offsets():
    """As vLLM's blocks are on most processors: a head's keys [channels][tokens], then its values [tokens][channels]."""
    head = np.arange(HEADS)[None, :, None] * 2 * BLOCK * DIM
    token, channel = np.arange(BLOCK)[:, None, None], np.arange(DIM)[None, None, :]
    return np.stack([head + channel * BLOCK + token, head + BLOCK * DIM + token * DIM + channel])


def paired_offsets():
    """As matrix units want them: keys in pairs of channels, values in pairs of tokens. No strides describe that."""
    head = np.arange(HEADS)[None, :, None] * 2 * BLOCK * DIM
    token, channel = np.arange(BLOCK)[:, None, None], np.arange(DIM)[None, None, :]
    return np.stack([head + channel // 2 * 2 * BLOCK + token * 2 + channel % 2,
                     head + BLOCK * DIM + token // 2 * 2 * DIM + channel * 2 + token % 2])


PACKINGS = {"vec": vec_offsets, "paired": paired_offsets}


def writer_of(offsets):
    def write(keys, values):
        block = np.zeros(ELEMENTS, np.float32)
        block[offsets] = np.stack([keys, values])
        return block
    return write


def keys_of(name, blocks):
    """As of a chain: those of "ab" begin with those of "a"."""
    return [(name[:1 + at] + str(at)).encode().ljust(32, b".") for at in range(blocks)]


def numbers_of(key, layer):
    """What the engine computes for a block."""
    return np.random.default_rng([layer, *key]).standard_normal((2, *SHAPE)).astype(np.float16).view(np.uint16)


class Engine:
    """Calls scheduler and worker in vLLM's order; requests are lists of keys."""

    def __init__(self, store, packing="vec", asynchronous=False, method="full", quality=1.0, floor=None,
                 workers_store=None, **worker):
        offsets = PACKINGS[packing]()
        self.kv = PagedKv([np.zeros((BLOCKS, ELEMENTS), np.uint16) for _ in range(LAYERS)],
                          learn_offsets(writer_of(offsets), ELEMENTS, SHAPE))
        assert np.array_equal(self.kv.offsets, offsets)
        self.held, self.asynchronous = [], asynchronous
        self.scheduler = Scheduler(store, BLOCK, asynchronous=asynchronous, floor=floor, hold=self.held.extend,
                                   let_go=lambda blocks: [self.held.remove(block) for block in blocks])
        self.worker = Worker(workers_store or store, self.kv, asynchronous=asynchronous, method=method,
                             quality=quality, floor=floor, **worker)

    def step(self, plan, compute=(), saves_later=False):
        """`compute`: (key, block) of what the forward pass computes. `saves_later`: after the results, as beside drafts
        of tokens. Returns blocks that failed."""
        plan = pickle.loads(pickle.dumps(plan))
        self.worker.take(plan)
        for layer in range(LAYERS):
            self.worker.wait_layer(layer)
            for key, block in compute:
                self.kv.layers[layer][block][self.kv.offsets] = numbers_of(key, layer)
            self.worker.computed_layer(layer)
        if not saves_later:
            self.worker.end()
        self.worker.end_loads()
        self.arrived, failed = self.worker.take_arrived(), self.worker.take_failed()
        if saves_later:
            self.worker.end()
        self.scheduler.reported(pickle.loads(pickle.dumps(self.worker.report())), failed)
        return failed

    def serve(self, name, keys, blocks, lossy=False, extra_tokens=1):
        """A request from its beginning to its end; how many blocks came from the store."""
        self.scheduler.add(name, lambda: keys, lossy)
        tokens = len(keys) * BLOCK + extra_tokens
        while (found := self.scheduler.found(name, 0, tokens)) is None:
            time.sleep(0.001)
        found //= BLOCK
        if found:
            self.scheduler.allocated(name, blocks, found * BLOCK)
        sound = found
        if found and self.asynchronous:
            failed = self.wait_for(name)
            sound = min([found, *(blocks.index(block) for block in failed)])
        while True:
            self.scheduler.computing(name, blocks, tokens)
            failed = self.step(self.scheduler.plan(), list(zip(keys, blocks))[sound:])
            if not failed:
                break
            sound = min(blocks.index(block) for block in failed)
        self.scheduler.finished(name)
        return found

    def wait_for(self, name):
        failed = set()
        while True:
            failed |= self.step(self.scheduler.plan(idle=True))
            if name in self.arrived:
                return failed

    def finish(self):
        """Until the store has all, and holds nothing of the engine's."""
        while self.scheduler.saving or self.worker._saves:
            self.step(self.scheduler.plan(idle=True))
        assert self.held == []

    def holds(self, keys, blocks):
        return all(np.array_equal(self.kv.layers[layer][block][self.kv.offsets], numbers_of(key, layer))
                   for key, block in zip(keys, blocks) for layer in range(LAYERS))

    def clear(self):
        for layer in self.kv.layers:
            layer[:] = 0x7e00  # not a number


def open_store(tiers="memory:?size=64MiB"):
    return Store("test", tiers, layers=LAYERS, kv_heads=HEADS, head_dim=DIM, block_tokens=BLOCK, chunk_tokens=2 * BLOCK)


def damage(folder):
    """One byte in the middle of every blob that holds keys and values."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size > 16384]
    assert files
    for path in files:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 0x40
        path.write_bytes(content)


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
            scheduler = Scheduler(store, BLOCK, asynchronous=asynchronous, hold=None, let_go=None)
            scheduler.add("two", lambda: keys)
            assert scheduler.found("two", 0, 3 * BLOCK) == blocks * BLOCK
            assert scheduler.found("two", BLOCK, 3 * BLOCK) == (blocks - 1) * BLOCK, "beside what the engine has itself"
            assert scheduler.found("two", 3 * BLOCK, 3 * BLOCK) == 0


def test_a_request_is_saved_as_it_grows_and_each_block_once():
    keys = keys_of("abcd", 4)
    with open_store() as store:
        engine = Engine(store)
        known = keys[:2]
        engine.scheduler.add("one", lambda: known)
        engine.scheduler.computing("one", [4, 5, 6], 2 * BLOCK + 7)
        plan = engine.scheduler.plan()
        assert [(job.first, job.blocks) for job in plan.saves] == [(0, (4, 5))] and engine.held == [4, 5]
        engine.step(plan, zip(keys[:2], [4, 5]))
        engine.scheduler.computing("one", [4, 5, 6, 8], 3 * BLOCK)
        assert engine.scheduler.plan().saves == [], "the third block has no key before its tokens are all known"
        known = keys
        engine.scheduler.computing("one", [4, 5, 6, 8], 4 * BLOCK)
        plan = engine.scheduler.plan()
        assert [(job.first, job.blocks) for job in plan.saves] == [(2, (4, 5, 6, 8))]
        engine.step(plan, zip(keys[2:], [6, 8]))
        engine.finish()
        assert store.lookup(keys).blocks == 4


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


def test_a_model_is_named_by_every_tensor(tmp_path):
    def write(name, changed=None):
        folder = tmp_path / name
        folder.mkdir()
        names = [f"layers.{n}.q_proj" for n in range(40)]
        header = {each: {"dtype": "F32", "shape": [1024], "data_offsets": [4096 * n, 4096 * (n + 1)]}
                  for n, each in enumerate(names)} | {"__metadata__": {"format": "pt"}}
        described = json.dumps(header).encode()
        data = bytearray(40 * 4096)
        if changed is not None:
            data[4096 * changed + 2000] = 1
        (folder / "model.safetensors").write_bytes(len(described).to_bytes(8, "little") + described + data)
        return weights_identity(folder)

    plain = write("plain")
    assert plain == write("same") and len({plain} | {write(f"layer{n}", n) for n in (0, 17, 39)}) == 4
    (tmp_path / "none").mkdir()
    with pytest.raises(ValueError, match="no weights"):
        weights_identity(tmp_path / "none")
    (tmp_path / "cut.safetensors").write_bytes(b"\xff" * 8)
    with pytest.raises(ValueError, match="no safetensors"):
        weights_identity(tmp_path / "cut.safetensors")

    configuration = tmp_path / "plain" / "config.json"
    names = {named_weights(tmp_path / "plain")}
    for theta in (10_000, 500_000):
        configuration.write_text(f'{{"rope_theta": {theta}}}')
        names.add(named_weights(tmp_path / "plain"))
    assert len(names) == 3, "the same weights, rotated in another way"
    before = stamps(tmp_path / "plain")
    assert before == stamps(tmp_path / "plain") and before != stamps(tmp_path / "same")
    configuration.write_text("{}")
    assert before != stamps(tmp_path / "plain") and stamps(tmp_path / "nowhere") == ()


def test_what_was_not_added_or_is_forgotten_is_neither_looked_up_nor_saved():
    with open_store() as store:
        engine = Engine(store)
        keys = keys_of("a", 4)
        engine.scheduler.add("a", lambda: keys)
        for request in ("another", "a"):
            engine.scheduler.forget()
            assert engine.scheduler.found(request, 0, 4 * BLOCK) == 0
            engine.scheduler.computing(request, [0, 1, 2, 3], 4 * BLOCK)
            assert not engine.scheduler.saving and not engine.scheduler.plan().saves
