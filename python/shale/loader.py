"""Loads of blocks into an engine's memory: waited for, layer by layer, or by a thread of their own."""

import collections
import contextlib
import os
import select
import threading
import time
from typing import NamedTuple

from .store import ClosedAtExit, drain


def _wait_for_news(seconds, *descriptors):
    """Until one of them can be read; all that can are drained."""
    poll = select.poll()  # select() takes none beyond 1023
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    drain(descriptor for descriptor, _ in poll.poll(None if seconds is None else 1000 * seconds))


class _Part(NamedTuple):
    """A load that is to bring the job's blocks from `begin` up to `end`; its run has `lead` blocks before the job's."""

    load: object
    run: object
    lead: int
    begin: int
    end: int

    def places(self, of):
        """Of a failure or a run of the load: the blocks that it is to bring."""
        first = of.first_block - self.lead
        return range(max(self.begin, first), min(self.end, first + of.blocks))


class Progress:
    """A job in flight. `failed`, once it has ended: places in its blocks that did not come, and `why`.

    The store brings whole chunks. Where the engine has the beginning of one itself, in blocks that others may read, a
    load of its own brings that chunk into an array between; all behind it come straight into the engine's blocks."""

    PATIENCE_S = 0.3  # for a store that is still to learn of what the scheduler's, in another process, has found
    OVERDUE = 1.1  # of its time-out: a load that ends later is counted

    def __init__(self, store, job, kv, timeout_s, options):
        self.job, self._kv = job, kv
        self.failed, self.why, self.counted = [], "they are not there any more", collections.Counter()
        self._delivered = 0  # layers
        self._begun = time.monotonic()
        self._timeout_s, self._deadline = timeout_s, self._begun + timeout_s
        self._store, self._options = store, options
        self._parts = []
        self._ended = False

    def poll(self):
        """Brings what has arrived into the engine's blocks; True once nothing more will come."""
        try:
            return self._ended or self._poll()
        except Exception as error:  # whatever it is, the engine computes these blocks, and other loads go on
            self._end(range(len(self.job.blocks)), error)
            return True

    def _poll(self):
        if not self._parts and not self._begin():
            return False
        done = all([part.load.poll() for part in self._parts])
        if not done and time.monotonic() > self._deadline:
            self.counted["loads_late"] += 1
            self._end(range(len(self.job.blocks)), f"they took longer than {self._timeout_s:g} s")
            return True
        while self._delivered < len(self._kv.layers) and (done or self._ready(self._delivered)):
            for part in self._parts:
                part.run.deliver(self._delivered)
            self._delivered += 1
        if done:
            self._end(self._missing())
        return done

    def _begin(self):
        """Once the store knows of all, or has had the time to learn of it."""
        job = self.job
        known = self._store.lookup(job.keys, **self._options).blocks >= len(job.keys)
        if not known and time.monotonic() < min(self._begun + self.PATIENCE_S, self._deadline):
            return False
        skipped = self._load(job.keys, self._kv.run(job.blocks), 0, 0, len(job.blocks)).skipped
        if skipped:
            self._parts[0] = self._parts[0]._replace(begin=skipped)
            lead = min(job.first, self._store.chunk_blocks - skipped)  # the chunk begins there, or later
            run = self._kv.between(job.blocks[:skipped], lead)
            self._load(job.keys[:job.first + skipped], run, lead, 0, skipped)
        return True

    def _load(self, keys, run, lead, begin, end):
        load = self._store.load(keys, run.view, first_block=self.job.first - lead, **self._options)
        self._parts.append(_Part(load, run, lead, begin, end))
        return load

    def _ready(self, layer):
        return all(part.load.layer_ready(layer) for part in self._parts)

    def _missing(self):
        """Blocks that were not found any more, failed, or are there in part only: engines attend to all tokens."""
        missing = set()
        for part in self._parts:
            missing.update(range(max(part.begin, part.load.blocks - part.lead), part.end))
            for failure in part.load.failures:
                missing.update(places := part.places(failure))
                self.why = failure.message if places else self.why
            for run in part.load.runs:
                if run.rows is not None and (run.rows != run.blocks * part.run.view.block_tokens).any():
                    missing.update(part.places(run))
                    self.why = "tokens were dropped of them"
                elif run.method != "full":
                    self.counted["blocks_lossy"] += len(part.places(run))
        return missing

    def _end(self, failed, why=None):
        self._ended, self.why = True, why or self.why
        for part in self._parts:
            part.load.cancel()  # from here on the engine computes into its blocks what has failed
        self._parts = []
        self.failed = sorted(failed)
        self.counted["loads"] += 1
        self.counted["loads_failed"] += bool(self.failed)
        self.counted["blocks_failed"] += len(self.failed)
        self.counted["blocks_loaded"] += len(self.job.blocks) - len(self.failed)
        seconds = time.monotonic() - self._begun
        self.counted["loads_overdue"] += seconds > self.OVERDUE * self._timeout_s
        self.counted["load_seconds"] += seconds

    def wait_s(self, most_s):
        """How long it may be left alone."""
        return max(0.0, min(most_s, self._deadline - time.monotonic()))

    def _wait_until(self, come):
        while not self.poll() and not come():
            news = []
            with contextlib.suppress(ValueError):  # it has been closed, and its loads go on
                news.append(self._store.event_fd)
            _wait_for_news(self.wait_s(0.01), *news)

    def wait_layer(self, layer):
        self._wait_until(lambda: self._delivered > layer)

    def wait(self):
        self._wait_until(lambda: False)


class BackgroundLoader(ClosedAtExit):
    """A thread that brings blocks while the engine computes others."""

    def __init__(self, store):
        self._news = os.eventfd(0, os.EFD_NONBLOCK)  # something was added, or it is to end
        self._arrived = os.dup(store.event_fd)  # which may close before this, and have its number used by others
        self._added, self._ended = collections.deque(), collections.deque()
        self._some_ended = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="shale-loads", daemon=True)
        self._under_way = 0  # added and not taken yet; of the caller's thread
        self._thread.start()
        super().__init__()

    def add(self, progress):
        self._under_way += 1
        self._added.append(progress)
        os.eventfd_write(self._news, 1)

    def ended(self, wait_s=0.0):
        """Takes what has ended; waits a moment for something to, where anything is in flight."""
        if self._under_way and wait_s:
            self._some_ended.wait(wait_s)
        self._some_ended.clear()
        taken = []
        while self._ended:
            taken.append(self._ended.popleft())
        self._under_way -= len(taken)
        return taken

    def close(self):
        super().close()
        if self._closing:
            return
        self._closing = True
        os.eventfd_write(self._news, 1)
        self._thread.join()
        os.close(self._news)
        os.close(self._arrived)

    def _run(self):
        loading = []
        while not self._closing:
            wait_s = min((progress.wait_s(0.05) for progress in loading), default=None)
            _wait_for_news(wait_s, self._news, self._arrived)
            while self._added:
                loading.append(self._added.popleft())
            still = [progress for progress in loading if not progress.poll()]
            if len(still) < len(loading):
                self._ended.extend(progress for progress in loading if progress not in still)
                self._some_ended.set()
            loading = still
