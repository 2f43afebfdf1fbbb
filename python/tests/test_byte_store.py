"""Values of bytes, called as LMCache calls its native plug-ins."""

import os
import select
import subprocess
import sys

import numpy as np
import pytest
from shale import Store
from shale.byte_store import ByteStore
from shale.lmcache import ShaleConnector

rng = np.random.default_rng(7)
SIZES = [1, 4096, 65536, 100_000, 3 * 65536, 1_500_000]


def completion(connector, number):
    """Of the only batch in flight, as a loop hears of it."""
    assert select.select([connector.event_fd()], [], [], 30)[0]
    (ended,) = connector.drain_completions()
    assert ended[0] == number
    return ended


def values_of(sizes):
    return [rng.integers(0, 256, size, np.uint8) for size in sizes]


def test_the_calls_of_a_native_plugin(tmp_path):
    names = [f"model@0000000{place}@0@{'ab' * 16}" for place in range(len(SIZES))]
    values = values_of(SIZES)
    connector = ShaleConnector(f"file://{tmp_path}?size=64MiB")
    assert completion(connector, connector.submit_batch_exists(names))[1:] == (True, "", [False] * len(names))
    assert completion(connector, connector.submit_batch_set(names, [memoryview(v) for v in values]))[1]
    connector.close()

    connector = ShaleConnector(tiers=[f"file://{tmp_path}?size=64MiB"])
    assert completion(connector, connector.submit_batch_exists(names))[3] == [True] * len(names)
    read = [bytearray(size) for size in SIZES]
    assert completion(connector, connector.submit_batch_get(names, [memoryview(r) for r in read]))[1]
    assert all(bytes(r) == v.tobytes() for r, v in zip(read, values))
    assert completion(connector, connector.submit_batch_delete(names[:2]))[3] == [True, True]
    assert completion(connector, connector.submit_batch_exists(names))[3] == [False, False] + [True] * (len(names) - 2)
    number, well, error, came = completion(connector, connector.submit_batch_get(names, [memoryview(r) for r in read]))
    assert not well and came == [False, False] + [True] * (len(names) - 2), "others come where one is missing"
    connector.close()


def test_closing_stores_what_was_handed_over_and_ends_every_batch(tmp_path):
    for attempt in range(20):
        names, values = [f"{attempt}/{n}" for n in range(8)], values_of([70_000] * 8)
        one = ByteStore("test", f"file://{tmp_path}?size=64MiB")
        batches = [one.submit_batch_set(names, values), one.submit_batch_exists(names),
                   one.submit_batch_get(names, [bytearray(70_000) for _ in names])]
        one.close()
        assert one.wait(batches[0]) == [True] * 8
        assert all(len(one.wait(batch)) == 8 for batch in batches[1:])
        other = ByteStore("test", f"file://{tmp_path}?size=64MiB")
        assert other.exists(*names) == [True] * 8
        other.close()
    with pytest.raises(ValueError, match="closed"):
        other.submit_batch_exists(names)


def run_program(text, *arguments):
    subprocess.run([sys.executable, "-W", "ignore", "-c", text, *map(str, arguments)], check=True, timeout=120)


def test_what_was_handed_over_is_stored_where_nobody_closes(tmp_path):
    tiers = f"file://{tmp_path}?size=64MiB"
    run_program("""
import sys, numpy as np
from shale.byte_store import ByteStore
store = ByteStore("test", sys.argv[1])
store.submit_batch_set([str(n) for n in range(8)], [np.full(1_000_000, n, np.uint8) for n in range(8)])
""", tiers + "&throttle=hdd")
    store = ByteStore("test", tiers)
    assert store.exists(*map(str, range(8))) == [True] * 8
    store.close()


def test_a_program_that_ends_amid_its_gets_ends_well(tmp_path):
    tiers = f"file://{tmp_path}?size=64MiB"
    store = ByteStore("test", tiers)
    assert all(store.wait(store.submit_batch_set(list("abcd"), values_of([4 << 20] * 4))))
    store.close()
    for _ in range(5):
        run_program("""
import sys
from shale.byte_store import ByteStore
store = ByteStore("test", sys.argv[1])
for _ in range(8):
    store.submit_batch_get(list("abcd"), [bytearray(4 << 20) for _ in range(4)])
""", tiers)


def test_the_end_of_a_fork_leaves_its_parents_store_open(tmp_path):
    run_program("""
import atexit, os, sys, numpy as np
from shale.byte_store import ByteStore
store = ByteStore("test", sys.argv[1])
child = os.fork()
if not child:
    atexit._run_exitfuncs()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert store.wait(store.submit_batch_set(["name"], [np.ones(100_000, np.uint8)])) == [True]
""", f"file://{tmp_path}?size=64MiB")


def test_nothing_is_true_of_an_empty_batch():
    connector = ShaleConnector("memory:?size=1MiB")
    assert completion(connector, connector.submit_batch_get([], []))[1:] == (True, "", [])
    with pytest.raises(ValueError, match="as many"):
        connector.submit_batch_set(["a"], [])
    with pytest.raises(ValueError, match="read-only"):
        connector.submit_batch_get(["a"], [b"constant"])
    connector.close()


def test_another_process_finds_values_of_any_size_on_a_shared_tier(tmp_path):
    names, values = ["small", "large"], values_of([70_000, 20 << 20])
    one = ByteStore("test", f"dir://{tmp_path}?name=shared")
    assert one.wait(one.submit_batch_set(names, values)) == [True, True]
    one.close()
    other = ByteStore("test", f"dir://{tmp_path}?name=shared")
    assert other.exists(*names, "none") == [True, True, False]
    read = [bytearray(len(value)) for value in values]
    assert other.wait(other.submit_batch_get(names, read)) == [True, True]
    assert all(bytes(r) == v.tobytes() for r, v in zip(read, values))
    other.close()


def test_a_buffer_that_cannot_be_used_leaves_nothing_behind():
    store = ByteStore("test", "memory:?size=1MiB")
    with pytest.raises(ValueError, match="read-only"):
        store.submit_batch_get(["a", "b"], [bytearray(10), b"constant"])
    store.wait_all()
    store.close()


def test_damage_is_a_miss(tmp_path):
    store = ByteStore("test", f"file://{tmp_path}?size=64MiB")
    (value,) = values_of([4 << 20])
    assert store.wait(store.submit_batch_set(["name"], [value])) == [True]
    store.close()
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.stat().st_size > 65536:
            with open(path, "r+b") as blob:
                blob.seek(path.stat().st_size // 2)
                byte = blob.read(1)
                blob.seek(-1, os.SEEK_CUR)
                blob.write(bytes([byte[0] ^ 1]))
    store = ByteStore("test", f"file://{tmp_path}?size=64MiB")
    read = np.zeros_like(value)
    assert store.wait(store.submit_batch_get(["name"], [read])) == [False]
    assert store.look_up("name", len(value)) == (False, False), "though its beginning is there"
    assert store.wait(store.submit_batch_set(["name"], [value])) == [True]
    assert store.wait(store.submit_batch_get(["name"], [read])) == [True] and np.array_equal(read, value)
    store.close()


def test_another_size_or_name_space_is_a_miss():
    store = ByteStore("one", "memory:?size=64MiB")
    (value,) = values_of([200_000])
    for size in (400_000, 199_999, 100_000, 1):  # what is there has as many units, or more, or less
        assert store.wait(store.submit_batch_set(["name"], [value])) == [True]
        assert store.wait(store.submit_batch_get(["name"], [np.zeros_like(value)])) == [True]
        assert store.wait(store.submit_batch_get(["name"], [np.zeros(size, np.uint8)])) == [False]
    (other,) = values_of([100_000])
    read = np.zeros_like(other)
    assert store.wait(store.submit_batch_set(["name"], [other])) == [True]
    assert store.wait(store.submit_batch_get(["name"], [read])) == [True] and (read == other).all(), "it took its place"
    store.close()


def test_a_tier_in_trouble_keeps_nobody_from_starting():
    store = ByteStore("test", "memory:?size=64MiB,redis://127.0.0.1:1")  # where nobody listens
    (value,) = values_of([300_000])
    read = np.zeros_like(value)
    assert store.wait(store.submit_batch_set(["name"], [value])) == [True]
    assert store.wait(store.submit_batch_get(["name"], [read])) == [True] and (read == value).all()
    store.close()


def test_a_tier_that_cannot_be_opened_is_told_of(tmp_path, caplog):
    (tmp_path / "file").write_text("no folder")
    tier = f"file://{tmp_path}/file/kv?size=64MiB"  # which no user can make, root neither
    store = ByteStore("test", tier)
    (trouble,) = [row["trouble"] for row in store.stats()["tiers"].values()]
    assert str(tmp_path) in trouble and "Not a directory" in trouble
    assert trouble in caplog.text
    number = store.submit_batch_set(["name"], values_of([70_000]))
    store.wait_all()
    ((_, well, error, _),) = store.drain_completions()
    assert not well and trouble in error
    store.close()
    with Store("test", "memory:?size=1MiB", layers=1, kv_heads=1, head_dim=32) as sound:
        assert [row["trouble"] for row in sound.stats()["tiers"].values()] == [None]


def test_no_room_is_said(tmp_path):
    store = ByteStore("test", f"file://{tmp_path}?size=64KiB")
    number = store.submit_batch_set(["large"], values_of([4 << 20]))
    store.wait_all()
    assert store.wait(number) == [False] and store.exists("large") == [False]
    store.close()
