"""Values of bytes by name, in Shale's store: for engines and caches that hand over no more than that.

They are kept exactly, with checksums, and what is damaged or gone is not there. Calls begin and return; a thread
follows what is in flight. `event_fd` is readable after something has ended.
"""

import collections
import hashlib
import os
import select
import threading
import time

import numpy as np

from .connector_options import parse_size, warn_of_trouble
from .store import ClosedAtExit, Store, StoreError, View, drain

_UNIT = 1 << 16  # bytes of a store's block; what engines hand over mostly has a multiple of it
_BLOCK_TOKENS = 16  # that a block counts as
PATIENCE_S = 0.2  # for shared tiers that are still being asked


class _Batch:
    """`answers`: it asks, so that "no" is an answer like any."""

    def __init__(self, number, count, answers):
        self.number, self.left, self.came, self.error = number, count, [False] * count, ""
        self.answers = answers


class _Question:
    """Whether a value's beginning is there, of tiers that may still be asked."""

    units = 1

    def __init__(self, place):
        self.batch, self.place = None, place

    def begin(self, store, keys, tenant, timeout_s):
        self._until = time.monotonic() + PATIENCE_S
        self._look_up = lambda: store.lookup(keys, tenant=tenant)
        self._look_up()  # so that all of a batch are asked for together

    def ended(self, _):
        found = self._look_up()
        if not found.blocks and found.pending and time.monotonic() < self._until:
            return None
        return found.blocks > 0

    def stop(self):
        self._until = 0


class _Transfer:
    """A value on its way. One that is no multiple of a unit goes through a copy that is."""

    def __init__(self, place, value):
        self.batch, self.place, self.value = None, place, value
        self.units = max(1, -(-len(value) // _UNIT))
        self.memory = value if len(value) == self.units * _UNIT else np.zeros(self.units * _UNIT, np.uint8)
        # How long the value is: one of another length does not come, and makes room for what is stored next.
        self.tokens = np.full(self.units * _BLOCK_TOKENS, len(value) & 0x7fffffff, np.int32)
        self.view = View.from_addresses([self.memory.ctypes.data], [], strides=(_UNIT, 0, 0, 0),
                                        tokens=self.units * _BLOCK_TOKENS, block_tokens=_BLOCK_TOKENS)
        self.handle = None

    @property
    def copied(self):
        return self.memory is not self.value


class _Get(_Transfer):
    def __init__(self, place, value):
        if not value.flags.writeable:
            raise ValueError("a buffer to read into is read-only")
        super().__init__(place, value)

    def begin(self, store, keys, tenant, timeout_s):
        now = time.monotonic()
        self._deadline, self._asked_until = now + timeout_s, now + PATIENCE_S
        self._look_up = lambda: store.lookup(keys, tenant=tenant)
        self._load = lambda: store.load(keys, self.view, tenant=tenant, tokens=self.tokens)

    def ended(self, _):
        """None while it is in flight, else whether all of it came."""
        if self.handle is None:
            found = self._look_up()
            if found.blocks < self.units and found.pending and time.monotonic() < self._asked_until:
                return None
            self.handle = self._load()
        if not self.handle.poll():
            if time.monotonic() < self._deadline:
                return None
            self.handle.cancel()
            return False
        came = self.handle.blocks == self.units and not self.handle.failures
        if came and self.copied:
            self.value[:] = self.memory[:len(self.value)]
        return came

    def stop(self):
        self._deadline = self._asked_until = 0


class _Set(_Transfer):
    def begin(self, store, keys, tenant, timeout_s):
        self._timeout_s, self._begun = timeout_s, time.monotonic()
        if self.copied:
            self.memory[:len(self.value)] = self.value
        self.handle = store.save(keys, self.view, tenant=tenant, tokens=self.tokens)

    def ended(self, stored_s):
        """`stored_s`: when something was stored last. It is given up where nothing is."""
        if not self.handle.done:
            if time.monotonic() < max(self._begun, stored_s) + self._timeout_s:
                return None
            self.handle.cancel()
            raise StoreError(f"nothing was stored for {self._timeout_s:g} s")
        self.handle.wait()  # raises where it was not stored
        return True

    def stop(self):
        """What is being stored is waited for."""


class ByteStore(ClosedAtExit):
    """`name_space` says what values must have in common to be used again. Names are text or bytes; buffers are anything
    contiguous that numpy can read, and stay untouched by their owner until their batch has ended. A name stands for values
    of one length: a set with another one keeps what is there, until a get asks for the new length. A get ends after
    `timeout_s`, and so does a set when nothing has been stored for as long."""

    def __init__(self, name_space, tiers, *, tenant="", staging="256MiB", timeout_s=30.0):
        tiers = tiers if isinstance(tiers, str) else ",".join(tiers)
        self._store = Store(f"bytes 2; {name_space}", tiers, layers=1, element="opaque", opaque_bytes=(_UNIT, 0),
                            block_tokens=_BLOCK_TOKENS, staging_bytes=parse_size(staging), late=True)
        warn_of_trouble(self._store)
        self._tenant, self._timeout_s = str(tenant), float(timeout_s)
        self._numbers = self._under_way = 0
        self._lock = threading.Condition()
        self._added, self._results = collections.deque(), {}
        self._closing = self._closed = False
        self._wake, self._ended = (os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) for _ in range(2))
        self._thread = threading.Thread(target=self._run, name="shale-bytes", daemon=True)
        self._thread.start()
        super().__init__()

    def event_fd(self):
        return self._ended

    def submit_batch_get(self, names, buffers):
        return self._submit(_Get, names, buffers)

    def submit_batch_set(self, names, buffers):
        return self._submit(_Set, names, buffers)

    def submit_batch_exists(self, names):
        """For each whether its beginning is there."""
        return self._begin([_Question(place) for place in range(len(names))], names, answers=True)

    def submit_batch_delete(self, names):
        """Those of this process's tiers; a value of which parts are pinned or shared stays."""
        removed = []
        for name in names:
            units = 0
            while self._store.lookup(_keys(name, units + 256), tenant=self._tenant).blocks > units:
                units += 256
            removed.append(units > 0 and self._store.remove(_keys(name, units), self._tenant) > 0)
        return self._answer(removed)

    def look_up(self, name, size=1):
        """Whether all of a value of so many bytes is there, as far as is known, and whether that is still being asked."""
        keys = _keys(name, max(1, -(-size // _UNIT)))
        found = self._store.lookup(keys, tenant=self._tenant)
        return found.blocks == len(keys), found.pending

    def exists(self, *names):
        return self.wait(self.submit_batch_exists(names))

    def touch(self, name):
        self._store.touch(_keys(name, 1), self._tenant)

    def stats(self):
        return self._store.stats()

    def drain_completions(self):
        """(number, whether it went well, error, for each name: it is there, came, was stored, or was removed) of
        batches that have ended. Gets and sets went well where all names did."""
        with self._lock:
            if not self._closed:
                drain([self._ended])
            results, self._results = self._results, {}
        return [(batch.number, batch.answers or all(batch.came), batch.error, batch.came)
                for batch in results.values()]

    def wait(self, number):
        """Of one batch, instead: for each name whether it went well."""
        with self._lock:
            self._lock.wait_for(lambda: number in self._results)
            return self._results.pop(number).came

    def wait_all(self):
        """Until every batch has ended; their results stay."""
        with self._lock:
            self._lock.wait_for(lambda: self._under_way == 0)

    def close(self):
        """Ends what is being read, and waits for what is being stored. Where nobody calls it, the end of the program does."""
        super().close()
        with self._lock:
            if self._closing:
                return
            self._closing = True
            os.eventfd_write(self._wake, 1)
        self._thread.join()
        with self._lock:
            self._closed = True
            os.close(self._wake)
            os.close(self._ended)
        self._store.close()

    def _submit(self, kind, names, buffers):
        if len(names) != len(buffers):
            raise ValueError(f"{len(names)} names and {len(buffers)} buffers: as many are needed")
        return self._begin([kind(place, np.frombuffer(buffer, np.uint8)) for place, buffer in enumerate(buffers)], names)

    def _begin(self, transfers, names, answers=False):
        keys = [_keys(name, transfer.units) for name, transfer in zip(names, transfers)]
        with self._lock:
            batch = self._batch(len(names), answers)
            for transfer, own in zip(transfers, keys):
                transfer.batch = batch
                self._added.append((transfer, own))
            if not names:
                self._publish(batch)
            os.eventfd_write(self._wake, 1)
        return batch.number

    def _answer(self, came):
        with self._lock:
            batch = self._batch(len(came), answers=True)
            batch.came = came
            self._publish(batch)
        return batch.number

    def _batch(self, count, answers):
        """With the lock held."""
        if self._closing:
            raise ValueError("the store is closed")
        self._numbers += 1
        self._under_way += 1
        return _Batch(self._numbers, count, answers)

    def _publish(self, batch):
        with self._lock:
            self._under_way -= 1
            self._results[batch.number] = batch
            os.eventfd_write(self._ended, 1)
            self._lock.notify_all()

    def _run(self):
        poll = select.poll()
        for event in (self._wake, self._store.event_fd):
            poll.register(event, select.POLLIN)
        in_flight, stored_s = [], 0
        while not self._closing or self._added or in_flight:
            if not self._added:
                drain(readable for readable, _ in poll.poll(50 if in_flight else None))
            while self._added:
                transfer, keys = self._added.popleft()
                if self._follow(transfer, lambda: transfer.begin(self._store, keys, self._tenant, self._timeout_s)):
                    in_flight.append(transfer)
            if self._closing:
                for transfer in in_flight:
                    transfer.stop()
            still = []
            for transfer in in_flight:
                if self._follow(transfer, lambda: transfer.ended(stored_s)):
                    still.append(transfer)
                elif isinstance(transfer, _Set) and transfer.batch.came[transfer.place]:
                    stored_s = time.monotonic()
            in_flight = still

    def _follow(self, transfer, call):
        """Whether it is still in flight after this."""
        batch = transfer.batch
        try:
            came = call()
        except Exception as error:  # whatever it is, others go on, and nobody waits for this one
            came, batch.error = False, str(error)
        if came is None:
            return True
        transfer.handle = None
        batch.came[transfer.place] = came
        batch.left -= 1
        if not batch.left:
            self._publish(batch)
        return False


def _keys(name, units):
    first = hashlib.sha256(name.encode() if isinstance(name, str) else bytes(name)).digest()
    return [first] + [hashlib.sha256(first + unit.to_bytes(4, "little")).digest() for unit in range(1, units)]
