"""The store on numpy arrays and raw memory."""

import asyncio
import os
import select
import sys
import threading
import time
import weakref

import numpy as np
import pytest
import shale

LAYERS, HEADS, DIM, BLOCK, TOKENS = 3, 2, 32, 8, 64
rng = np.random.default_rng(5)


def open_store(tiers="memory:?size=64MiB", **more):
    return shale.Store("test", tiers, layers=LAYERS, kv_heads=HEADS, head_dim=DIM, block_tokens=BLOCK, chunk_tokens=16,
                       **more)


def plain():
    return [rng.standard_normal((LAYERS, HEADS, TOKENS, DIM)).astype(np.float16) for _ in range(2)]


def view_of(arrays):
    return shale.View(*arrays, block_tokens=BLOCK)


def keys_of(first):
    return shale.block_keys(np.arange(first, first + TOKENS), BLOCK)


def same_bytes(a, b):
    return all(np.array_equal(x.view(np.uint16), y.view(np.uint16)) for x, y in zip(a, b))


def test_what_is_saved_comes_back_into_blocks_of_another_layout():
    saved, keys = plain(), keys_of(0)
    with open_store() as store:
        assert store.lookup(keys).blocks == 0
        store.save(keys, view_of(saved), tokens=np.arange(TOKENS)).wait()
        found = store.lookup(keys)
        assert (found.blocks, found.exact_blocks, found.quality) == (8, 8, 1)

        # vLLM's blocks: [layers][2][blocks][tokens][heads][channels], in any order of blocks.
        pool = np.zeros((LAYERS, 2, 20, BLOCK, HEADS, DIM), np.float16)
        table = [3, 19, 0, 7, 11, 2, 5, 13]
        view = shale.View(pool[:, 0], pool[:, 1], "LBTHD", block_tokens=BLOCK, block_table=table)
        load = store.load(keys, view, tokens=np.arange(TOKENS))
        for layer in range(LAYERS):
            load.wait_layer(layer)
            assert load.layer_ready(layer)
        load.wait()
        assert load.done and load.blocks == 8 and load.failures == []
        assert [run.method for run in load.runs] == ["full"] and load.runs[0].rows is None
        assert np.array_equal(load.lineage_keys(keys), keys)
        for side in range(2):
            back = pool[:, side][:, table].transpose(0, 3, 1, 2, 4).reshape(LAYERS, HEADS, TOKENS, DIM)
            assert same_bytes([back], [saved[side]])


def test_addresses_are_views_too():
    saved, loaded, keys = plain(), [np.zeros((LAYERS, HEADS, TOKENS, DIM), np.float16) for _ in range(2)], keys_of(0)
    with open_store() as store:
        store.save(keys, view_of(saved)).wait()
        addresses = [[array[layer].ctypes.data for layer in range(LAYERS)] for array in loaded]
        view = shale.View.from_addresses(*addresses, strides=(BLOCK * DIM * 2, DIM * 2, TOKENS * DIM * 2, 2),
                                         tokens=TOKENS, block_tokens=BLOCK)
        store.load(list(map(bytes, keys)), view).wait()
        assert same_bytes(loaded, saved)


def test_tensors_are_views_too():
    torch = pytest.importorskip("torch")
    saved = [torch.randn(LAYERS, HEADS, TOKENS, DIM).to(torch.bfloat16) for _ in range(2)]
    loaded = [torch.zeros_like(array) for array in saved]
    with open_store(element="bf16") as store:
        store.save(keys_of(0), view_of(saved)).wait()
        store.load(keys_of(0), view_of(loaded)).wait()
        assert all(torch.equal(a, b) for a, b in zip(saved, loaded))


def test_lossy_blocks_of_others_on_a_shared_tier_are_worth_what_their_reader_says(tmp_path):
    saved, keys, tiers = plain(), keys_of(0), f"dir://{tmp_path}/shared"
    with open_store(tiers) as store:
        store.save(keys, view_of(saved), method="int8", quality=0.99).wait()
    for qualities, blocks in ({"int8": 0.97}, 8), ({"int8": 0.5}, 0), ({"kivi4": 0.97}, 0), (None, 0):
        with open_store(tiers, qualities=qualities) as store:
            until = time.monotonic() + 10
            found = store.lookup(keys, lossy=True, quality_min=0.9)
            while found.pending and time.monotonic() < until:
                found = store.lookup(keys, lossy=True, quality_min=0.9)
            assert found.blocks == blocks
            assert blocks == 0 or found.quality == pytest.approx(0.97)
            assert store.lookup(keys).blocks == 0, "nothing exact"


def test_lossy_blocks_come_only_where_they_are_accepted():
    saved, loaded, keys = plain(), plain(), keys_of(0)
    with open_store() as store:
        store.save(keys, view_of(saved), method="keydiff+int8", keep=0.5, quality=0.9).wait()
        assert store.lookup(keys).blocks == 0
        assert store.lookup(keys, lossy=True, quality_min=0.95).blocks == 0
        load = store.load(keys, view_of(loaded), lossy=True)
        load.wait()
        (run,) = load.runs
        assert (run.method, run.keep) == ("keydiff+int8", 0.5)
        assert run.rows.shape == (LAYERS, HEADS) and (run.rows == TOKENS // 2).all()
        assert not np.array_equal(load.lineage_keys(keys), keys)


def test_a_folder_is_found_again(tmp_path):
    saved, loaded, keys = plain(), plain(), keys_of(0)
    tiers = f"file://{tmp_path}?size=64MiB"
    with open_store(tiers) as store:
        store.save(keys, view_of(saved), tenant="a").wait()
    with open_store(tiers) as store:
        assert store.lookup(keys, tenant="b").blocks == 0
        store.load(keys, view_of(loaded), tenant="a").wait()
        stats = store.stats()
    assert same_bytes(saved, loaded)
    assert stats["tenants"]["a"]["blocks_loaded"] == 8 and stats["tiers"]["disk"]["chunks"] == 4


def test_a_tenant_at_its_quota_drops_its_own():
    with open_store() as store:
        for first in (0, 1000):
            store.save(keys_of(first), view_of(plain()), tenant="ann", recompute_s=1).wait()
        store.flush()
        store.set_quota("ann", store.stats()["tenants"]["ann"]["bytes"])
        store.save(keys_of(0), view_of(plain()), tenant="bob").wait()
        store.save(keys_of(2000), view_of(plain()), tenant="ann", recompute_s=2).wait()
        store.flush()
        ann = store.stats()["tenants"]["ann"]
        assert ann["bytes"] <= ann["bytes_max"] and ann["dropped_for_room"] == 1 and ann["refused"] == 0
        assert store.lookup(keys_of(2000), tenant="ann").blocks == 8
        assert store.lookup(keys_of(0), tenant="bob").blocks == 8


def test_futures_wake_by_the_event_fd():
    saved, keys = plain(), keys_of(0)

    async def through(store):
        save = await asyncio.wait_for(store.future(store.save(keys, view_of(saved))), 60)
        assert save.done and save.released
        loads = [plain() for _ in range(3)]
        done = await asyncio.wait_for(
            asyncio.gather(*(store.future(store.load(keys, view_of(arrays))) for arrays in loads)), 60)
        assert all(load.done for load in done)
        assert all(same_bytes(saved, arrays) for arrays in loads)

    with open_store() as store:
        asyncio.run(through(store))
        (event,) = store.take_events()
        assert event.kind == "stored" and np.array_equal(event.keys, keys)


def test_a_loop_that_ended_leaves_nothing_that_the_next_one_waits_for(tmp_path):
    saved, keys = plain(), keys_of(0)

    async def give_up(store, arrays):
        assert not store.future(store.load(keys, view_of(arrays))).done()  # and nobody awaits it

    async def come(store, arrays):
        await asyncio.wait_for(store.future(store.load(keys, view_of(arrays))), 60)

    with open_store(f"file://{tmp_path}?size=64MiB&throttle=hdd") as store:
        store.save(keys, view_of(saved)).wait()
        for _ in range(3):
            asyncio.run(give_up(store, plain()))
        arrays = plain()
        asyncio.run(come(store, arrays))
        assert same_bytes(saved, arrays)


def test_a_future_of_a_load_that_outlives_its_store_comes(tmp_path):
    saved, loaded, keys = plain(), plain(), keys_of(0)

    async def come():
        with open_store(f"file://{tmp_path}?size=64MiB&throttle=hdd") as store:
            future = store.future(store.load(keys, view_of(loaded)))
            assert not future.done()
        assert (await asyncio.wait_for(future, 10)).done

    with open_store(f"file://{tmp_path}?size=64MiB") as store:
        store.save(keys, view_of(saved)).wait()
    asyncio.run(come())
    assert same_bytes(saved, loaded)


@pytest.mark.parametrize("hit_before_the_loop_goes_on", [False, True])
def test_a_future_that_was_given_up_holds_nothing(tmp_path, hit_before_the_loop_goes_on):
    saved, keys = plain(), keys_of(0)

    async def give_up():
        loop, store = asyncio.get_running_loop(), open_store(f"file://{tmp_path}?size=64MiB&throttle=hdd")
        event_fd, load = store.event_fd, store.load(keys, view_of(plain()))
        there, future = weakref.ref(load), store.future(load)
        assert not future.done() and future.cancel()
        if hit_before_the_loop_goes_on:
            assert store.future(store.load(keys_of(1000), view_of(plain()))).done(), "nothing is there"
        await asyncio.sleep(0)
        load.cancel()
        del load
        assert there() is None, "nobody else has it"
        assert not loop.remove_reader(event_fd), "the loop reads it no more"
        store.close()

    with open_store(f"file://{tmp_path}?size=64MiB") as store:
        store.save(keys, view_of(saved)).wait()
    asyncio.run(give_up())


def test_a_store_closes_though_a_loop_that_is_gone_awaited_its_loads(tmp_path):
    saved, keys = plain(), keys_of(0)

    async def leave(store):
        load = store.load(keys, view_of(plain()))
        assert not store.future(load).done()
        return weakref.ref(load)

    with open_store(f"file://{tmp_path}?size=64MiB") as store:
        store.save(keys, view_of(saved)).wait()
    store = open_store(f"file://{tmp_path}?size=64MiB&throttle=hdd")
    there = asyncio.run(leave(store))
    store.close()
    assert there() is None


def test_without_threads_the_owner_works():
    saved, loaded, keys = plain(), plain(), keys_of(0)

    async def through(store):
        async def work():
            while True:
                store.work(1e-3)
                await asyncio.sleep(0)

        working = asyncio.ensure_future(work())
        save = await asyncio.wait_for(store.future(store.save(keys, view_of(saved))), 60)
        load = await asyncio.wait_for(store.future(store.load(keys, view_of(loaded))), 60)
        assert save.done and load.done and load.blocks == 8
        working.cancel()

    with open_store(threads=-1) as store:
        asyncio.run(through(store))
        store.flush()
        assert store.work() is False, "nothing is left to do"
    assert same_bytes(saved, loaded)


# Nobody is made to let go of the interpreter's lock here: another thread runs where this one does so by itself.
@pytest.mark.parametrize("last", ["load", "save", "store"])
def test_others_run_while_the_last_handle_closes_the_store(tmp_path, last):
    begin, ran = threading.Event(), []

    def run():
        begin.wait()
        ran.append(True)

    store = open_store(f"file://{tmp_path}?size=64MiB&throttle=100KB/s,50ms")
    save = store.save(keys_of(0), view_of(plain()))
    save.wait_released()
    held = {"load": store.load(keys_of(1000), view_of(plain())), "save": save, "store": store}
    del save
    if last != "store":
        store.close()
    del store
    held = [held[last]]
    other, interval = threading.Thread(target=run), sys.getswitchinterval()
    other.start()
    try:
        sys.setswitchinterval(1000)
        begin.set()
        held.pop()
        assert ran
    finally:
        sys.setswitchinterval(interval)
        other.join()


def test_another_thread_may_close_the_store_meanwhile():
    keys = keys_of(0)
    for _ in range(20):
        store = open_store()
        asked = threading.Event()

        def ask():
            with pytest.raises(ValueError, match="closed"):
                while True:
                    store.lookup(keys)
                    store.flush()
                    asked.set()

        thread = threading.Thread(target=ask)
        thread.start()
        asked.wait()
        store.close()
        thread.join()


def test_the_event_fd_is_for_any_loop():
    with open_store() as store:
        save = store.save(keys_of(0), view_of(plain()))
        while not save.done:
            assert select.select([store.event_fd], [], [], 60)[0], "nothing tells that the save has ended"
            os.read(store.event_fd, 8)


def test_pins_and_removals():
    keys = keys_of(0)
    with open_store() as store:
        first = store.save(keys, view_of(plain()))
        first.wait()
        again = store.save(keys, view_of(plain()))
        again.wait()
        assert (first.shared_blocks, again.shared_blocks) == (0, 8)
        assert store.pin(keys) == 8 and store.remove(keys) == 0
        assert store.unpin(keys) == 8 and store.touch(keys) == 8 and store.remove(keys) == 8
        assert store.lookup(keys).blocks == 0


def test_what_is_saved_with_a_pin_is_pinned_whoever_stored_it():
    keys = keys_of(0)
    with open_store() as store:
        store.save(keys[:4], shale.View(*[array[:, :, :4 * BLOCK] for array in plain()], block_tokens=BLOCK),
                   pin=True).wait()
        store.save(keys, view_of(plain()), pin=True).wait()
        assert store.unpin(keys) == 8, "of the one who saved all"
        assert store.remove(keys) == 4, "the other's stay pinned"
        assert store.unpin(keys) == 4 and store.remove(keys) == 4


def test_a_pin_of_one_form_is_not_of_another():
    keys = keys_of(0)
    with open_store() as store:
        store.save(keys, view_of(plain()), method="int8", quality=0.9).wait()
        store.save(keys, view_of(plain()), pin=True).wait()
        store.unpin(keys)
        assert store.remove(keys) == 16 and store.lookup(keys, lossy=True).blocks == 0, "both forms"


def test_a_load_outlives_its_store_and_a_closed_one_says_so():
    loaded, saved, keys = plain(), plain(), keys_of(0)
    store = open_store()
    store.save(keys, view_of(saved)).wait()
    load = store.load(keys, view_of(loaded))
    store.close()
    load.wait()
    assert same_bytes(saved, loaded)
    with pytest.raises(ValueError, match="closed"):
        store.lookup(keys)


def read_only(array):
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("call, part", [
    (lambda store: shale.Store("test", "tape:", layers=1, kv_heads=1, head_dim=8), "tape"),
    (lambda store: shale.Store("test", "memory:?size=1MiB", layers=1, kv_heads=1, head_dim=8, element="fp8"), "fp8"),
    (lambda store: store.lookup(np.zeros((2, 31), np.uint8)), "32"),
    (lambda store: store.lookup([b"short"]), "32"),
    (lambda store: store.load(keys_of(0), view_of([read_only(array) for array in plain()])), "read-only"),
    (lambda store: store.load(keys_of(0), view_of([array[:2] for array in plain()])), "layers"),
    (lambda store: store.save(keys_of(0), view_of([array.astype(np.float32) for array in plain()])), "float32"),
    (lambda store: store.load(keys_of(0), view_of([array.astype(">f2") for array in plain()])), ">f2"),
    (lambda store: store.save(keys_of(0), view_of(plain()), time_to_live_s=float("inf")), "time_to_live_s"),
    (lambda store: store.save(keys_of(0), view_of(plain()), method="int8", quality=95.0), "quality"),
    (lambda store: store.save(keys_of(0), view_of(plain()), method="nothing"), "nothing"),
    (lambda store: store.save(keys_of(0), view_of([array[:, :, ::-1] for array in plain()])), "stride"),
    (lambda store: shale.View(*plain(), "LTD"), "dims"),
    (lambda store: shale.View(*[array[:, :, :7] for array in plain()], block_tokens=8, tokens=8), "hold a block"),
    (lambda store: shale.View(*plain(), "LBTHD"), "dimensions"),
])
def test_bad_input_is_named(call, part):
    with open_store() as store, pytest.raises(ValueError, match=part):
        call(store)
