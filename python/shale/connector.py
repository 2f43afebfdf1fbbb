"""Both halves of a connector between a paged engine and a store, without the engine: who asks the store, and when.

The scheduler's half looks prompts up and makes a plan for each step; the worker's half carries it out on the engine's
memory. Between them go `Plan`s and `Report`s, which can be pickled; every plan has to arrive, for each tells of a
request's blocks and keys only what is new. A block is saved once, when it is full, by the store's threads while the
engine goes on; the scheduler holds it until they have read it. Loads run beside the engine (asynchronous) or a layer
ahead of it.

After a load has failed, blocks hold garbage until the engine computes them anew, and so does what is computed on them
before that: an engine may be a step ahead, or share them among requests. The worker knows which, for plans say what is
computed where. It saves none of that, and tells the scheduler, which has the engine's own cache forget it: the request
that was to compute it anew may end before it does.
"""

import collections
import dataclasses
import itertools
import logging
import time
from typing import NamedTuple

from .connector_options import check_method
from .loader import BackgroundLoader, Progress
from .saver import Saver


class LoadJob(NamedTuple):
    """Blocks keys[first:] into the engine's `blocks`, as many."""

    request: str
    keys: tuple
    first: int
    blocks: tuple
    lossy: bool


class Growth(NamedTuple):
    """More of the engine's blocks that hold a request's tokens; all of them where they are others, `anew`."""

    request: str
    blocks: tuple
    anew: bool


class Computation(NamedTuple):
    """Of a request's tokens, those from `begin` up to `end` are computed."""

    request: str
    begin: int
    end: int


class SaveJob(NamedTuple):
    """Of a request's blocks, those from `first` up to `last`. `keys`, 32 bytes each, are those up to `last` that were
    not told before."""

    number: int
    request: str
    keys: bytes
    first: int
    last: int


@dataclasses.dataclass
class Plan:
    ended: list = dataclasses.field(default_factory=list)  # requests, before any that grow
    growths: list = dataclasses.field(default_factory=list)
    loads: list = dataclasses.field(default_factory=list)
    computations: list = dataclasses.field(default_factory=list)
    saves: list = dataclasses.field(default_factory=list)
    idle: bool = False  # nothing is computed in this step


@dataclasses.dataclass
class Report:
    copied: list = dataclasses.field(default_factory=list)  # numbers of saves that go on with copies of their blocks
    released: list = dataclasses.field(default_factory=list)  # of saves that read neither blocks nor copies any more
    garbage: list = dataclasses.field(default_factory=list)  # blocks that were computed on others that did not come

    def aggregate(self, other):
        return type(self)(self.copied + other.copied, self.released + other.released, self.garbage + other.garbage)


class _Request(NamedTuple):
    keys: object  # gives those of all whole blocks so far
    lossy: bool


class Scheduler:
    """Decides. `hold(blocks)` keeps blocks of the engine from being used anew until `let_go(blocks)`; `evict(blocks)`
    has its own cache forget what they hold, whoever uses them. An engine may be there to load alone, or to save."""

    PATIENCE_S = 0.2  # for shared tiers that are still being asked

    def __init__(self, store, block_tokens, *, asynchronous=True, floor=None, tenant="", loads=True, saves=True, hold,
                 let_go, evict):
        self._store, self._block_tokens, self._asynchronous = store, block_tokens, asynchronous
        self._floor, self._tenant, self._may_load, self._may_save = floor, tenant, loads, saves
        self._hold, self._let_go, self._evict = hold, let_go, evict
        self._requests, self._asked = {}, {}
        self._computed = {}  # by request: tokens that the engine had itself when it was looked up
        self._tables = {}  # by request: the engine's blocks that hold its tokens, as the worker knows them
        self._told = {}  # by request: leading keys that the worker knows
        self._saved = collections.Counter()  # by request: leading blocks that need no save any more
        self._held = {}  # by save: its blocks, none once they were copied
        self._loads, self._given_up = {}, set()  # by request: blocks of its last load; those of which one has failed
        self._plan = Plan()
        self._numbers = 0

    def add(self, request, keys, lossy=False):
        """`keys()` gives those of the request's whole blocks, more as it grows. `lossy`: it accepts the floor's
        quality, of which there has to be one, and nothing of it is ever saved. Of requests that are not added nothing is
        looked up or saved."""
        self._requests[request] = _Request(keys, lossy)
        self._told.pop(request, None)  # these may be others

    def forget(self):
        """Nothing more is looked up or saved of the requests so far."""
        self._requests.clear()

    def found(self, request, computed, tokens):
        """How many of its `tokens` beyond the `computed` ones a load would bring; None: ask again soon."""
        limit = tokens if self._asynchronous else tokens - 1  # a step that waits for a load has to compute something
        first, last = computed // self._block_tokens, limit // self._block_tokens
        known = self._requests.get(request) if self._may_load else None
        if not known or computed % self._block_tokens or last <= first or request in self._given_up:
            return 0
        needs = {"lossy": True, "quality_min": self._floor} if known.lossy else {}
        found = self._store.lookup(known.keys()[:last], tenant=self._tenant, **needs)
        if found.pending and found.blocks < last:
            asked = self._asked.setdefault(request, time.monotonic())
            if time.monotonic() < asked + self.PATIENCE_S:
                return None
        self._asked.pop(request, None)
        self._computed[request] = computed
        return max(found.blocks - first, 0) * self._block_tokens

    def allocated(self, request, blocks, tokens):
        """The engine gave it `blocks`; `tokens` of what was found are to be loaded."""
        known, computed = self._requests[request], self._computed[request]
        first, last = computed // self._block_tokens, (computed + tokens) // self._block_tokens
        self._loads[request] = set(blocks[first:last])
        self._plan.loads.append(
            LoadJob(request, tuple(known.keys()[:last]), first, tuple(blocks[first:last]), known.lossy))

    def covers(self, request, blocks, end):
        """Whether the blocks of it that are known, and as many more, have room for its tokens up to `end`."""
        return (len(self._tables.get(request, ())) + blocks) * self._block_tokens >= end

    def computing(self, request, blocks, begin, end, anew=False):
        """In this step its tokens from `begin` up to `end` will have been computed. They lie in the blocks that are
        known and these behind, or, `anew`, in these alone."""
        anew = anew or request not in self._tables
        table = self._tables.setdefault(request, [])
        table[0 if anew else len(table):] = blocks
        if anew or blocks:
            self._plan.growths.append(Growth(request, tuple(blocks), anew))
        self._plan.computations.append(Computation(request, begin, end))
        known = self._requests.get(request) if self._may_save else None
        first = self._saved[request]
        if known is None or known.lossy or end // self._block_tokens <= first:
            return
        keys = known.keys()
        last = min(end // self._block_tokens, len(keys))
        if last <= first:
            return
        self._numbers += 1
        told = self._told.get(request, 0)
        self._plan.saves.append(SaveJob(self._numbers, request, b"".join(keys[told:last]), first, last))
        self._told[request], self._saved[request] = max(told, last), last
        self._held[self._numbers] = table[first:last]
        self._hold(table[first:last])

    def plan(self, idle=False):
        """What the worker has to do in this step."""
        plan, self._plan = self._plan, Plan()
        plan.idle = idle
        return plan

    def reported(self, report, failed_blocks=()):
        """What the worker did in a step; the engine takes back what it had counted on in `failed_blocks` itself."""
        report = report or Report()
        garbage = set(failed_blocks).union(report.garbage)
        if garbage:
            self._evict(garbage)
            # Computed from here on: a tier that is silent would be asked again and again.
            self._given_up.update(request for request, blocks in self._loads.items() if blocks & set(failed_blocks))
            self._saved.clear()  # what was saved is found to be there; what was barred is saved
        for number in report.copied:
            self._let_go(self._held[number])
            self._held[number] = ()
        for number in report.released:
            self._let_go(self._held.pop(number))

    def finished(self, request):
        if request in self._tables:
            self._plan.ended.append(request)
        for of in (self._requests, self._tables, self._told, self._saved, self._asked, self._computed, self._loads):
            of.pop(request, None)
        self._given_up.discard(request)

    @property
    def saving(self):
        """Whether blocks, or copies of them, are held: the engine has to go round, so that it ends."""
        return bool(self._held)

    @property
    def holds(self):
        """By block: how many saves hold it."""
        return collections.Counter(itertools.chain.from_iterable(self._held.values()))


class Worker:
    """Carries plans out on `kv`, a PagedKv; calls of one thread. `copies`: what is saved is copied in its step, so that
    no block of the engine is held beyond it."""

    SILENT_S = 60.0  # after a failure of loads, or of saves, was logged

    def __init__(self, store, kv, *, asynchronous=True, method="full", quality=1.0, floor=None, tenant="",
                 timeout_s=30.0, copies=False):
        check_method(method, kv.offsets.shape[-1])
        self._store, self._kv, self._copies = store, kv, copies or not kv.in_place
        self._floor, self._tenant, self._timeout_s = floor, tenant, timeout_s
        self._loader = BackgroundLoader(store) if asynchronous else None
        self._plan = Plan()
        self._tables, self._keys = {}, {}  # by request: its blocks; keys of leading ones
        self._loading = []  # Progress of what this step's layers wait for
        self._runs = {}  # by save of this step: its run of blocks
        self._failed, self._garbage = set(), set()
        self._barred = {}  # by block that did not come, or was computed on one: its leading tokens that are sound again
        self._arrived = set()
        self.counted = collections.Counter()
        self._saver = Saver(store, self.counted, self._save_failed, method=method, quality=quality, tenant=tenant)
        self._silent_until = {}  # by what fails: it is not logged before

    def take(self, plan):
        """A step, before its layers: these wait for its loads, or do not touch the blocks that they go into."""
        self._plan = plan
        for request in plan.ended:
            self._tables.pop(request, None)
            self._keys.pop(request, None)
        for request, blocks, anew in plan.growths:
            table = self._tables.setdefault(request, [])
            table[0 if anew else len(table):] = blocks
        for job in plan.loads:
            for block in job.blocks:  # what lay there before is gone, and what comes is sound or barred again
                self._barred.pop(block, None)
            (self._loader.add if self._loader else self._loading.append)(self._progress(job))

    def _progress(self, job):
        needs = {"lossy": True, "quality_min": self._floor} if job.lossy else {}
        return Progress(self._store, job, self._kv, self._timeout_s, {"tenant": self._tenant, **needs})

    def wait_layer(self, layer):
        """Until the loads of this step have brought this layer, or have failed."""
        for progress in self._loading:
            progress.wait_layer(layer)

    def computed_layer(self, layer):
        """This layer has been computed. Copies what is saved of it, where copies are saved."""
        if not self._copies:
            return
        for job in self._plan.saves:
            if job.number not in self._runs:
                self._runs[job.number] = self._run(job)
            self._runs[job.number].fill(layer)

    def _run(self, job):
        blocks = self._tables[job.request][job.first:job.last]
        return self._kv.between(blocks) if self._copies else self._kv.run(blocks)

    def end_loads(self):
        """All layers have been computed, or wait for no load any more. May be called again."""
        for progress in self._loading:
            progress.wait()
            self._note(progress)
        self._loading = []
        if self._loader:
            for progress in self._loader.ended(wait_s=0.002 if self._plan.idle else 0):
                self._note(progress)
                self._arrived.add(progress.job.request)
        for request, begin, end in self._plan.computations if self._barred else ():
            self._note_computed(self._tables[request], begin, end)
        self._plan.computations = []

    def end(self):
        """All layers have been computed: finishes the step's loads and begins its saves."""
        self.end_loads()
        for job in self._plan.saves:
            self._save(job, self._runs.pop(job.number, None))
        idle, self._plan = self._plan.idle, Plan()
        self._saver.follow()
        if idle and self._saver.saving:
            time.sleep(0.001)  # the engine goes round only to hear that they have ended

    def _note(self, progress):
        failed = {progress.job.blocks[at] for at in progress.failed}
        self._failed |= failed
        self._barred.update(dict.fromkeys(failed, 0))
        self.counted.update(progress.counted)
        if failed:
            self._warn("blocks were not loaded", progress.why)

    def _warn(self, what, why):
        """At once, and then not again for a while: what fails once mostly fails again and again."""
        now = time.monotonic()
        if now >= self._silent_until.get(what, now):
            self._silent_until[what] = now + self.SILENT_S
            logging.getLogger("shale").warning("shale: %s: %s", what, why)

    def _note_computed(self, blocks, begin, end):
        """What is computed on garbage is garbage, and what is computed on sound blocks is sound."""
        size = self._kv.block_tokens
        sound = all(self._barred.get(block, size) >= min(size, begin - first)
                    for first, block in zip(range(0, begin, size), blocks))
        for first, block in zip(range(begin // size * size, end, size), blocks[begin // size:]):
            if not sound:
                self._barred[block] = min(self._barred.get(block, size), max(0, begin - first))
                self._garbage.add(block)
            elif end - first >= size:
                self._barred.pop(block, None)
            elif block in self._barred:
                self._barred[block] = end - first

    def _save(self, job, run):
        if job.keys:
            self._keys[job.request] = self._keys.get(job.request, b"")[:32 * job.last - len(job.keys)] + job.keys
        if self._barred and not self._barred.keys().isdisjoint(self._tables[job.request][:job.last]):
            self.counted["saves_cancelled"] += 1
            self._saver.drop(job.number)
        else:
            self._saver.add(job.number, self._keys[job.request][:32 * job.last], job.first, run or self._run(job))

    def _save_failed(self, why):
        self.counted["saves_failed"] += 1
        self._warn("blocks were not saved", why)

    def report(self):
        garbage, self._garbage = self._garbage, set()
        return Report(*self._saver.take_released(), list(garbage))

    def take_arrived(self):
        """Requests whose asynchronous loads have ended, whole or with failures."""
        arrived, self._arrived = self._arrived, set()
        return arrived

    def take_failed(self):
        """The engine's blocks that did not come."""
        failed, self._failed = self._failed, set()
        return failed

    def close(self, patience_s=10.0):
        """Ends loads, and gives saves the time to end."""
        if self._loader:
            self._loader.close()
        self._saver.close(patience_s)

    def take_over(self, closed):
        """What another worker, of caches that are gone, was told of requests, let go of and did not report."""
        self._tables, self._keys = closed._tables, closed._keys
        self._saver.take_over(closed._saver)
        self._garbage |= closed._garbage
