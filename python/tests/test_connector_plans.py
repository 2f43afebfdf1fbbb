"""What goes between the connector's halves: each plan tells only what is new."""

import pickle

from paged_engine import BLOCK, Engine, keys_of, open_store
from shale.connector import Scheduler, Worker
from shale.request_keys import RequestKeys


def test_plans_do_not_grow_with_their_requests():
    keys, sizes = keys_of("a", 500), {True: [], False: []}
    with open_store() as store:
        scheduler = Scheduler(store, BLOCK, hold=lambda blocks: None, let_go=None, evict=None)
        scheduler.add("one", lambda: keys)
        scheduler.computing("one", list(range(490)), 0, 490 * BLOCK)
        scheduler.plan()
        for token in range(490 * BLOCK, 497 * BLOCK):
            new = token % BLOCK == 0
            scheduler.computing("one", [token // BLOCK] if new else (), token, token + 1)
            plan = scheduler.plan()
            sizes[bool(new or plan.saves)].append(len(pickle.dumps(plan)))
            assert [(job.first, job.last) for job in plan.saves] == (
                [(token // BLOCK, token // BLOCK + 1)] if (token + 1) % BLOCK == 0 else [])
    assert max(sizes[False]) < 300 and max(sizes[True]) < 500


def test_a_preempted_request_goes_on_in_other_blocks():
    keys = keys_of("abc", 3)
    with open_store() as store:
        engine = Engine(store)
        engine.scheduler.add("one", lambda: keys)
        engine.compute("one", keys[:2], [0, 1])
        engine.finish()
        engine.clear()
        engine.compute("one", keys, [5, 6, 7], anew=True)
        engine.finish()
        engine.clear()
        assert engine.serve("two", keys, [8, 9, 10]) == 3 and engine.holds(keys, [8, 9, 10])


def test_a_request_that_is_added_again_with_other_keys_has_these():
    keys, others = keys_of("abc", 3), keys_of("xyz", 3)
    with open_store() as store:
        engine = Engine(store)
        for named, blocks, begin, end in ((keys, [0, 1], 0, 2), (others, [2], 2, 3)):
            engine.scheduler.add("one", lambda named=named: named)
            engine.scheduler.computing("one", blocks, begin * BLOCK, end * BLOCK)
            engine.step(engine.scheduler.plan(), [(keys[at], at) for at in range(begin, end)])
        engine.finish()
        assert store.lookup(keys).blocks == 2 and engine.worker._keys["one"] == b"".join(others)


def test_a_request_may_have_the_name_of_one_that_has_just_ended():
    with open_store() as store:
        engine = Engine(store)
        for keys, blocks in ((keys_of("abc", 3), [0, 1, 2]), (keys_of("xyz", 3), [4, 5, 6])):
            engine.scheduler.add("one", lambda keys=keys: keys)
            engine.compute("one", keys, blocks)
            engine.scheduler.finished("one")
        engine.finish()
        engine.step(engine.scheduler.plan(idle=True))  # which tells that the second one has ended
        worker, scheduler = engine.worker, engine.scheduler
        assert worker._tables == worker._keys == scheduler._tables == scheduler._told == {}
        engine.clear()
        assert engine.serve("two", keys, [8, 9, 10]) == 3 and engine.holds(keys, [8, 9, 10])


def test_a_worker_of_other_caches_goes_on_with_what_the_one_before_was_told():
    keys = keys_of("abc", 3)
    with open_store() as store:
        engine = Engine(store)
        engine.scheduler.add("one", lambda: keys)
        engine.compute("one", keys[:2], [0, 1])
        before, engine.worker = engine.worker, Worker(store, engine.kv, asynchronous=False)
        before.close()
        engine.worker.take_over(before)
        engine.compute("one", keys, [2], first=2)
        engine.finish()
        engine.clear()
        assert engine.serve("two", keys, [8, 9, 10]) == 3 and engine.holds(keys, [8, 9, 10])


def test_keys_are_made_once_and_anew_of_what_a_session_has_replaced():
    hashes = [bytes([number]) * 32 for number in range(4)]
    plain, adapters = RequestKeys(lambda: hashes), RequestKeys(lambda: hashes, b"adapter")
    assert plain() == hashes and set(plain()).isdisjoint(adapters())
    first = list(adapters())
    hashes[2:] = [b"other" * 6 + b"!!", *hashes[2:]]
    assert all(a is b for a, b in zip(adapters()[:2], first[:2])) and len(adapters()) == 5
    assert adapters() == RequestKeys(lambda: list(hashes), b"adapter")() and plain() == hashes
    del hashes[1:]
    assert adapters() == first[:1] and plain() == hashes
    assert RequestKeys(lambda: [b"xxhash"])() == [b"xxhash".ljust(32, b"\0")]
