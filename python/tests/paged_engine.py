"""A paged engine that computes nothing but numbers, and calls the connector as vLLM calls its own."""

import hashlib
import pathlib
import pickle
import time

import numpy as np
from shale import Store
from shale.connector import Scheduler, Worker
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
    return [hashlib.sha256(f"{name[:1 + at]}{at}".encode()).digest() for at in range(blocks)]


def numbers_of(key, layer):
    """What the engine computes for a block."""
    return np.random.default_rng([layer, *key]).standard_normal((2, *SHAPE)).astype(np.float16).view(np.uint16)


class Engine:
    """Calls scheduler and worker in vLLM's order; requests are lists of keys."""

    def __init__(self, store, packing="vec", asynchronous=False, method="full", quality=1.0, floor=None,
                 workers_store=None, loads=True, saves=True, **worker):
        offsets = PACKINGS[packing]()
        self.kv = PagedKv([np.zeros((BLOCKS, ELEMENTS), np.uint16) for _ in range(LAYERS)],
                          learn_offsets(writer_of(offsets), ELEMENTS, SHAPE))
        assert np.array_equal(self.kv.offsets, offsets)
        self.held, self.evicted, self.asynchronous = [], set(), asynchronous
        self.scheduler = Scheduler(store, BLOCK, asynchronous=asynchronous, floor=floor, loads=loads, saves=saves,
                                   hold=self.held.extend,
                                   let_go=lambda blocks: [self.held.remove(block) for block in blocks],
                                   evict=self.evicted.update)
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

    def compute(self, name, keys, blocks, first=0, anew=False):
        """One step: the keys from `first` on, in these blocks of it, which are new to the scheduler."""
        self.scheduler.computing(name, blocks, first * BLOCK, len(keys) * BLOCK, anew)
        self.step(self.scheduler.plan(), list(zip(keys[first:], blocks)))

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
            self.scheduler.computing(name, blocks, sound * BLOCK, tokens, anew=True)
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
        while self.scheduler.saving or self.worker._saver.saving:
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


def blobs(folder):
    """Those that hold keys and values."""
    return {path for path in folder.rglob("*") if path.is_file() and path.stat().st_size > 16384}


def damage(paths):
    """One byte in the middle of every blob of a folder, or of these."""
    files = blobs(paths) if isinstance(paths, pathlib.Path) else paths
    assert files
    for path in files:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 0x40
        path.write_bytes(content)
