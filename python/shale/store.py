"""Shale's store: KV at rest in tiers, loaded into and saved from the memory of numpy arrays, torch tensors or addresses.

    store = shale.Store("my-model v1", "memory:?size=4GiB,file:///var/kv?size=100GiB",
                        layers=32, kv_heads=8, head_dim=128)
    keys = shale.block_keys(tokens)
    view = shale.View(key_cache, value_cache, "LBTHD", block_table=table, tokens=len(tokens))
    load = store.load(keys, view)
    for layer in range(32):
        load.wait_layer(layer)      # or: await store.future(load)

Nothing waits unless its name says so. Loads and saves hold on to their arrays.
"""

import asyncio
import atexit
import contextlib
import os
from typing import NamedTuple

import numpy as _np

from . import _shale
from ._shale import StoreError

_ELEMENTS = {"fp16": 0, "bf16": 1, "fp32": 2, "opaque": 3}
_PACKINGS = {"NHD": 0, "HND": 1, "pages": 2}
_DTYPES = {"fp16": ("float16", "uint16", "int16"), "bf16": ("bfloat16", "uint16", "int16"),
           "fp32": ("float32", "uint32", "int32")}


class Lookup(NamedTuple):
    """What a load would bring: `blocks` leading ones, `pending` while shared tiers are being asked for more."""

    blocks: int
    exact_blocks: int
    quality: float
    tier: int
    ready_s: float
    pending: bool


class Event(NamedTuple):
    kind: str  # "stored", "removed", or "lost": ask anew
    tier: int
    tenant: str
    parent: bytes
    keys: _np.ndarray
    block_tokens: int


class Failure(NamedTuple):
    first_block: int
    blocks: int
    message: str


class Run(NamedTuple):
    """Blocks that were stored together. `rows`: tokens of each [layer, KV head] of lossy ones, None where all are there."""

    first_block: int
    blocks: int
    method: str
    keep: float
    rows: object


def block_keys(tokens, block_tokens=16, seed="", extras=()):
    """A key for each whole block of `tokens`, uint8 [blocks, 32], as vLLM's sha256_cbor makes them with `seed`."""
    tokens = _np.ascontiguousarray(tokens, dtype=_np.int32)
    return _keys_from(_shale._block_keys(tokens, block_tokens, seed, list(extras)))


def _keys_from(packed):
    return _np.frombuffer(packed, dtype=_np.uint8).reshape(-1, 32)


def _pack(keys):
    if isinstance(keys, (bytes, bytearray)):
        return bytes(keys)
    if isinstance(keys, _np.ndarray):
        if keys.dtype != _np.uint8 or keys.ndim != 2 or keys.shape[1] != 32:
            raise ValueError("keys are uint8 [blocks, 32], or a list of 32 bytes each")
        return keys.tobytes()
    packed = [bytes(key) for key in keys]
    if any(len(key) != 32 for key in packed):
        raise ValueError("keys are uint8 [blocks, 32], or a list of 32 bytes each")
    return b"".join(packed)


def _int32(tokens):
    return None if tokens is None else _np.ascontiguousarray(tokens, dtype=_np.int32)


class ClosedAtExit:
    """What has a thread that must have ended before the interpreter does: CPython ends those that come back to it then,
    in the middle of whatever they do. Calls close() where nobody has, in the process that made it alone."""

    def __init__(self):
        self._process = os.getpid()
        atexit.register(self._exit)

    def _exit(self):
        if os.getpid() == self._process:  # a fork has neither the thread nor a store that it may touch
            self.close()

    def close(self):
        atexit.unregister(self._exit)


def drain(readable):
    """Reads event descriptors, of which another thread may have read any first."""
    for descriptor in readable:
        with contextlib.suppress(BlockingIOError):
            os.read(descriptor, 8)


def _memory(array):
    """Address, strides in bytes, shape and whether it may be written, of a numpy array or a torch tensor on the CPU."""
    if hasattr(array, "data_ptr"):
        if array.device.type != "cpu":
            raise ValueError(f"the tensor lies on {array.device}: views are of host memory")
        size = array.element_size()
        return array.data_ptr(), [stride * size for stride in array.stride()], tuple(array.shape), True
    return array.ctypes.data, list(array.strides), array.shape, array.flags.writeable


class View:
    """Keys and values where an engine holds them.

    `dims` names the arrays' dimensions: L layer, B block, T token, H KV head, D channel. "LHTD" are plain arrays with all
    tokens in T; "LBTHD" are vLLM's blocks, tokens of a block in T. Without L, `keys` and `values` are sequences of one
    array a layer. Logical block i lies at physical block block_table[i], or at i. `tokens` are those of the run, whole
    blocks; by default all that the arrays hold.
    """

    def __init__(self, keys, values, dims="LHTD", *, block_tokens=16, block_table=None, tokens=None):
        if sorted(dims.replace("L", "").replace("B", "")) != sorted("THD") or len(set(dims)) != len(dims):
            raise ValueError(f"dims '{dims}': write L, B, T, H and D in the arrays' order; L and B may be left out")
        self._arrays = tuple(side if "L" in dims else tuple(side) for side in (keys, values))
        self.writable = True
        self.dtypes = set()
        sides = [self._side(side, dims, block_tokens) for side in (keys, values)]
        (keys_of, keys_shape), (values_of, values_shape) = sides
        if keys_shape != values_shape:
            raise ValueError(f"keys are {keys_shape}, values {values_shape} (layers, KV heads, channels, blocks)")
        layers, heads, channels, blocks = keys_shape
        if not blocks:
            raise ValueError(f"the arrays do not hold a block of {block_tokens} tokens")
        self.shape = (layers, heads, channels)
        self.block_tokens = block_tokens
        if tokens is None:
            tokens = block_tokens * (blocks if block_table is None else len(block_table))
        table = None if block_table is None else _np.ascontiguousarray(block_table, dtype=_np.uint32)
        self._view = _shale._View(keys_of, values_of, table, blocks, tokens, block_tokens)

    @classmethod
    def from_addresses(cls, keys, values, *, strides, tokens, block_tokens=16, block_table=None, physical_blocks=0):
        """The same of raw memory, which the caller keeps: an address a layer, or none of values where blocks are opaque
        and in one array. `strides`: of block, token, KV head and channel, in bytes, for both, or a pair of such."""
        view = cls.__new__(cls)
        view._arrays = None
        view.writable = True
        view.shape = view.dtypes = None
        view.block_tokens = block_tokens
        pair = strides if isinstance(strides[0], (tuple, list)) else (strides, strides)
        table = None if block_table is None else _np.ascontiguousarray(block_table, dtype=_np.uint32)
        view._view = _shale._View((list(keys), list(pair[0])), (list(values), list(pair[1])), table, physical_blocks,
                                  tokens, block_tokens)
        return view

    def _side(self, arrays, dims, block_tokens):
        inner = dims.replace("L", "")
        if "L" in dims:
            before = (slice(None),) * dims.index("L")
            arrays = [arrays[(*before, layer)] for layer in range(arrays.shape[len(before)])]
        if not len(arrays):
            raise ValueError("there are no layers")
        addresses, first = [], None
        for layer in arrays:
            address, strides, shape, writable = _memory(layer)
            if len(shape) != len(inner):
                raise ValueError(f"an array of {len(shape)} dimensions is not '{dims}'")
            self.writable = self.writable and writable
            self.dtypes.add(str(layer.dtype).removeprefix("torch."))
            addresses.append(address)
            if first is not None and first != (strides, shape):
                raise ValueError("layers differ in shape or strides")
            first = (strides, shape)
        stride, size = dict(zip(inner, first[0])), dict(zip(inner, first[1]))
        if "B" in inner:
            if size["T"] != block_tokens:
                raise ValueError(f"blocks have {size['T']} tokens, block_tokens is {block_tokens}")
            blocks = size["B"]
        else:
            stride["B"] = stride["T"] * block_tokens
            blocks = size["T"] // block_tokens
        strides = [stride[dim] for dim in "BTHD"]
        return (addresses, strides), (len(addresses), size["H"], size["D"], blocks)


class Load:
    """Blocks on their way into a view, which is written only inside poll and wait. Dropping it cancels."""

    def __init__(self, handle, view, heads):
        self._handle, self._view, self._heads = handle, view, heads

    def __del__(self):
        self._handle = None  # before the arrays

    @property
    def blocks(self):
        """That were found when it was asked for."""
        return self._handle.blocks()

    @property
    def skipped(self):
        """Of these, leading ones whose chunk begins before the view: they fail, and their memory stays untouched."""
        return self._handle.skipped()

    def poll(self):
        """Decodes what has arrived; True when nothing more will come."""
        return self._handle.poll()

    def layer_ready(self, layer):
        return self._handle.layer_ready(layer)

    def wait_layer(self, layer):
        self._handle.wait_layer(layer)

    def wait(self):
        """Until nothing more will come; StoreError only where no block came at all."""
        self._handle.wait()

    def cancel(self):
        """The view is the caller's again at once."""
        self._handle.cancel()

    @property
    def done(self):
        return self._handle.done()

    @property
    def failures(self):
        """Blocks that did not come: what the view holds there is undefined. Once done."""
        return [Failure(*row) for row in self._handle.failures()]

    @property
    def runs(self):
        layers, heads = self._heads
        rows = [Run(*row) for row in self._handle.runs(layers * heads)]
        return [run if run.rows is None else run._replace(rows=_np.array(run.rows).reshape(layers, heads)) for run in rows]

    def lineage_keys(self, keys):
        """What KV computed on top is to be saved under: the same keys where all that was loaded is exact."""
        return _keys_from(self._handle.lineage_keys(_pack(keys)))


class Save:
    """Blocks on their way into tiers. Dropping it cancels what has not been encoded."""

    def __init__(self, handle, view):
        self._handle, self._view = handle, view

    def __del__(self):
        self._handle = None  # before the arrays

    def poll(self):
        """True once all blocks can be found, or an error is known."""
        return self._handle.done()

    @property
    def released(self):
        """Whether the view is not read any more; its arrays are then let go of."""
        if self._view and self._handle.released():
            self._view = None
        return not self._view

    @property
    def done(self):
        return self._handle.done()

    @property
    def shared_blocks(self):
        """Of the view, that were there already."""
        return self._handle.shared_blocks()

    def wait_released(self):
        self._handle.wait_released()

    def wait(self):
        self._handle.wait()

    def cancel(self):
        self._handle.cancel()
        self._view = None


class Store:
    """See docs/guides/embedding.md; every argument is a field of shale_store_options (include/shale/store.h)."""

    def __init__(self, name_space, tiers, *, layers, kv_heads=0, head_dim=0, block_tokens=16, element="fp16",
                 opaque_bytes=(0, 0), packing="NHD", chunk_tokens=256, threads=1, staging_bytes=0, late=False, qualities=None):
        """`threads`: that encode and move; -1: none, and the owner calls work(). `qualities`: by method, what blocks are
        worth that others stored so with every token, and left on a shared tier, in [0, 1]; nobody there says. Not named:
        nothing."""
        for value, known, what in ((element, _ELEMENTS, "element"), (packing, _PACKINGS, "packing")):
            if value not in known:
                raise ValueError(f"{what} '{value}': give one of {', '.join(known)}")
        self._shape = (layers, kv_heads, head_dim)
        self._block_tokens = block_tokens
        self._element = element
        self._store = _shale._Store(name_space, tiers, _ELEMENTS[element], layers, kv_heads, head_dim, block_tokens,
                                    tuple(opaque_bytes), _PACKINGS[packing], chunk_tokens, threads, staging_bytes,
                                    late, qualities or {})
        self.chunk_blocks = (chunk_tokens or 256) // block_tokens
        self._waiting = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Closes it, once all loads and saves are gone, too: of futures, when these have ended, or their loop."""
        self._drop_closed_loops()
        self._store.close()

    def _checked(self, view):
        if view.shape not in (None, self._shape) or view.block_tokens != self._block_tokens:
            raise ValueError(f"the view is {view.shape} with blocks of {view.block_tokens} tokens, the store {self._shape} "
                             f"with blocks of {self._block_tokens} (layers, KV heads, channels)")
        if view.dtypes and self._element in _DTYPES and not view.dtypes.issubset(_DTYPES[self._element]):
            raise ValueError(f"the view has {', '.join(sorted(view.dtypes))}, the store {self._element}: give arrays of "
                             f"{' or '.join(_DTYPES[self._element])}")
        return view._view

    def lookup(self, keys, *, lossy=False, quality_min=0.0, tenant=""):
        return Lookup(*self._store.lookup(_pack(keys), lossy, quality_min, tenant))

    def load(self, keys, view, *, lossy=False, quality_min=0.0, tenant="", first_block=0, tokens=None):
        """Begins to load what is there of keys[first_block:] into the view, of chunks that begin there or later."""
        if not view.writable:
            raise ValueError("the view's arrays are read-only")
        handle = self._store.load(_pack(keys), self._checked(view), lossy, quality_min, tenant, first_block, _int32(tokens))
        return Load(handle, view, self._shape[:2])

    def save(self, keys, view, *, method="full", keep=1.0, quality=1.0, tenant="", first_block=0, boundaries=(),
             recompute_s=0.0, label="", pin=False, time_to_live_s=0.0, tokens=None):
        """Begins to store those blocks of the view that are not there yet."""
        handle = self._store.save(_pack(keys), self._checked(view), method, keep, quality, tenant, first_block,
                                  list(boundaries), recompute_s, label, pin, time_to_live_s, _int32(tokens))
        return Save(handle, view)

    def touch(self, keys, tenant=""):
        return self._store.touch(_pack(keys), tenant)

    def pin(self, keys, tenant=""):
        return self._store.pin(_pack(keys), tenant)

    def unpin(self, keys, tenant=""):
        return self._store.unpin(_pack(keys), tenant)

    def remove(self, keys, tenant=""):
        return self._store.remove(_pack(keys), tenant)

    def set_quota(self, tenant, bytes_max):
        """What a tenant may have at rest, 0: no bound; its own least valuable extents are dropped (shale_store_set_quota)."""
        self._store.set_quota(tenant, bytes_max)

    def work(self, budget_s=0.005):
        """Encodes, writes and moves for about so long, for stores with `threads=-1`; False when there was nothing to do.
        One caller at a time."""
        return self._store.work(budget_s)

    def flush(self):
        """Waits until everything that was saved lies where it belongs."""
        self._store.flush()

    def stats(self):
        return self._store.stats()

    def take_events(self, max=1000):
        return [Event(kind, tier, tenant, parent, _keys_from(keys), block_tokens)
                for kind, tier, tenant, parent, keys, block_tokens in self._store.take_events(max)]

    @property
    def event_fd(self):
        """Readable after anything has arrived or ended, or an event waits; read it, then poll what is in flight."""
        return self._store.event_fd()

    def future(self, handle):
        """An asyncio future of the running loop: the load or save, once done. The loop then reads event_fd. One loop at
        a time."""
        loop = asyncio.get_running_loop()
        self._drop_closed_loops()
        if any(not waits.done() and waits.get_loop() is not loop for _, waits in self._waiting):
            raise RuntimeError("loads or saves of this store are awaited in another loop")
        future = loop.create_future()
        if handle.poll():
            future.set_result(handle)
            return future
        event_fd = self.event_fd  # which lives as long as the handle, that is, beyond close()
        loop.add_reader(event_fd, self._arrived, event_fd)
        self._waiting.append((handle, future))
        future.add_done_callback(lambda done: self._ended(done, event_fd))  # given up, too
        return future

    def _drop_closed_loops(self):
        self._waiting = [(handle, future) for handle, future in self._waiting if not future.get_loop().is_closed()]

    def _arrived(self, event_fd):
        drain([event_fd])
        for handle, future in self._waiting:
            try:
                if not future.done() and handle.poll():
                    future.set_result(handle)
            except StoreError as error:
                future.set_exception(error)

    def _ended(self, future, event_fd):
        waiting = [(handle, other) for handle, other in self._waiting if other is not future]
        loop = future.get_loop()
        if not any(other.get_loop() is loop for _, other in waiting):
            loop.remove_reader(event_fd)  # before the last handle, which may close it
        self._waiting = waiting
