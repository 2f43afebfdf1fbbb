"""Loads of blocks into an engine's memory: waited for, layer by layer, or by a thread of their own."""

import collections
import contextlib
import os
import select
import threading
import time

from .store import ClosedAtExit, drain


def _wait_for_news(store, seconds, *others):
    """Of the store, or until another descriptor can be read; all of these are drained."""
    poll = select.poll()  # select() takes none beyond 1023
    for descriptor in others:
        poll.register(descriptor, select.POLLIN)
    with contextlib.suppress(ValueError):  # it has been closed, and its loads go on: whoever waits looks after them
        poll.register(store.event_fd, select.POLLIN)
    drain(descriptor for descriptor, _ in poll.poll(None if seconds is None else 1000 * seconds))


class Progress:
    """A load in flight. `failed`, once it has ended: places in the job's blocks that did not come, and `why`. The run
    holds `lead` blocks more in front: the store brings whole chunks, and leaves out one that begins before the view."""

    PATIENCE_S = 0.3  # for a store that is still to learn of what the scheduler's, in another process, has found
    OVERDUE = 1.1  # of its time-out: a load that ends later is counted

    def __init__(self, store, job, run, lead, layers, timeout_s, options):
        self.job, self._run, self._lead, self._layers = job, run, lead, layers
        self.failed, self.why, self.counted = [], "they are not there any more", collections.Counter()
        self._delivered = 0
        self._begun = time.monotonic()
        self._timeout_s, self._deadline = timeout_s, self._begun + timeout_s
        self._store, self._options = store, options
        self._load = None
        self._ended = False

    def poll(self):
        """Brings what has arrived into the engine's blocks; True once nothing more will come."""
        try:
            return self._ended or self._poll()
        except Exception as error:  # whatever it is, the engine computes these blocks, and other loads go on
            self._end(range(len(self.job.blocks)), error)
            return True

    def _poll(self):
        if self._load is None:
            known = self._store.lookup(self.job.keys, **self._options).blocks >= len(self.job.keys)
            if not known and time.monotonic() < min(self._begun + self.PATIENCE_S, self._deadline):
                return False
            self._load = self._store.load(self.job.keys, self._run.view, first_block=self.job.first - self._lead,
                                          **self._options)
        done = self._load.poll()
        if not done and time.monotonic() > self._deadline:
            self._load.cancel()
            self.counted["loads_late"] += 1
            self._end(range(len(self.job.blocks)), f"they took longer than {self._timeout_s:g} s")
            return True
        while self._delivered < self._layers and (done or self._load.layer_ready(self._delivered)):
            self._run.deliver(self._delivered)
            self._delivered += 1
        if done:
            self._end(self._missing())
        return done

    def _missing(self):
        """Blocks that were not found any more, failed, or are there in part only: engines attend to all tokens."""
        missing = set(range(max(0, self._load.blocks - self._lead), len(self.job.blocks)))
        for failure in self._load.failures:
            missing.update(place := self._places(failure))
            self.why = failure.message if place else self.why
        tokens = self._run.view.block_tokens
        for run in self._load.runs:
            place = self._places(run)
            if run.rows is not None and (run.rows != run.blocks * tokens).any():
                missing.update(place)
                self.why = "tokens were dropped of them"
            elif run.method != "full":
                self.counted["blocks_lossy"] += len(place)
        return missing

    def _places(self, of):
        """Of a failure or a run: those in the job's blocks."""
        first = of.first_block - self._lead
        return range(max(0, first), max(0, first + of.blocks))

    def _end(self, failed, why=None):
        self._ended, self.why = True, why or self.why
        self._load = None
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
            _wait_for_news(self._store, self.wait_s(0.01))

    def wait_layer(self, layer):
        self._wait_until(lambda: self._delivered > layer)

    def wait(self):
        self._wait_until(lambda: False)


class BackgroundLoader(ClosedAtExit):
    """A thread that brings blocks while the engine computes others."""

    def __init__(self, store):
        self._store = store
        self._news = os.eventfd(0, os.EFD_NONBLOCK)  # something was added, or it is to end
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

    def _run(self):
        loading = []
        while not self._closing:
            wait_s = min((progress.wait_s(0.05) for progress in loading), default=None)
            _wait_for_news(self._store, wait_s, self._news)
            while self._added:
                loading.append(self._added.popleft())
            still = [progress for progress in loading if not progress.poll()]
            if len(still) < len(loading):
                self._ended.extend(progress for progress in loading if progress not in still)
                self._some_ended.set()
            loading = still
