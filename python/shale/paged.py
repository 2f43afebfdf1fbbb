"""Keys and values in an engine's own paged memory, in whatever order its attention wants them.

The order is learnt by having the engine write known numbers (`learn_offsets`). Where it comes down to strides, the
store reads and writes the engine's blocks where they lie; else they are put in order in an array between.
"""

import numpy as np

from .store import View


def learn_offsets(write, elements, shape):
    """Where in a block each element lies: int64 [keys, values][tokens][KV heads][channels].

    `write(keys, values)` has the engine write float32 arrays of `shape`, (tokens, KV heads, channels), into one block
    of `elements` elements and returns these as float32. All are whole numbers below 256, which every type holds.
    """
    count = 2 * int(np.prod(shape))
    names = np.arange(1, count + 1).reshape(2, *shape)
    found = np.zeros(elements, np.int64)
    for shift in range(0, count.bit_length(), 8):
        found += write(*((names >> shift) & 255).astype(np.float32)).astype(np.int64) << shift
    places = np.flatnonzero(found)
    if not np.array_equal(np.sort(found[places]), np.arange(1, count + 1)):
        raise ValueError(f"the engine did not keep all {count} elements of a block of {shape} (tokens, KV heads, "
                         "channels): caches in fewer bits than keys and values have cannot be stored")
    offsets = np.empty(count, np.int64)
    offsets[found[places] - 1] = places
    return offsets.reshape(2, *shape)


def _strides(offsets):
    """The first element's offset, and strides of token, head and channel; None where no strides describe them."""
    first = int(offsets[0, 0, 0])
    corners = (offsets[1:2, 0, 0], offsets[0, 1:2, 0], offsets[0, 0, 1:2])
    strides = tuple(int(corner[0]) - first if len(corner) else 0 for corner in corners)
    if min(strides) < 0:
        return None
    grid = np.indices(offsets.shape)
    return (first, strides) if np.array_equal(offsets, first + sum(s * g for s, g in zip(strides, grid))) else None


class PagedKv:
    """An engine's cache: `layers` are arrays of its bits, uint16 or uint32, [blocks][elements of a block]."""

    def __init__(self, layers, offsets):
        self.layers, self.offsets = list(layers), offsets
        self.block_tokens = offsets.shape[1]
        sides = [_strides(side) for side in offsets]
        self._sides = None if None in sides else sides

    @property
    def in_place(self):
        """Whether runs are views of the engine's memory, not copies."""
        return self._sides is not None

    def run(self, blocks):
        """A view of the engine's `blocks`."""
        return _RunInPlace(self, blocks) if self.in_place else self.between(blocks)

    def between(self, blocks, lead=0):
        """A view of an array between, for `lead` blocks that are not the engine's, and its `blocks` behind them."""
        return _RunBetween(self, blocks, lead)

    def _view_in_place(self, blocks):
        sizes = {layer.itemsize for layer in self.layers}
        assert len(sizes) == 1 and len({layer.strides for layer in self.layers}) == 1
        size, block_stride = sizes.pop(), self.layers[0].strides[0]
        addresses = [[layer.ctypes.data + first * size for layer in self.layers] for first, _ in self._sides]
        strides = [(block_stride, *(stride * size for stride in inner)) for _, inner in self._sides]
        return View.from_addresses(*addresses, strides=strides, tokens=len(blocks) * self.block_tokens,
                                   block_tokens=self.block_tokens, block_table=blocks,
                                   physical_blocks=len(self.layers[0]))


class _RunInPlace:
    """Some blocks, as a view for the store."""

    copied = False  # a save of it reads the engine's memory

    def __init__(self, kv, blocks):
        self._kv = kv  # keeps the memory
        self.view = kv._view_in_place(blocks)

    def fill(self, layer):
        """Brings the engine's blocks into the view, before a save."""

    def deliver(self, layer):
        """Brings what a load put into the view into the engine's blocks."""


class _RunBetween:
    copied = True

    def __init__(self, kv, blocks, lead):
        self._kv, self._blocks = kv, blocks
        _, tokens, heads, channels = kv.offsets.shape
        plain = np.empty((len(kv.layers), 2, lead + len(blocks), tokens, heads, channels), kv.layers[0].dtype)
        self.view = View(plain[:, 0], plain[:, 1], "LBTHD", block_tokens=tokens)
        self._plain = plain[:, :, lead:]

    def fill(self, layer):
        for block, plain in zip(self._blocks, self._plain[layer].swapaxes(0, 1)):
            plain[:] = self._kv.layers[layer][block][self._kv.offsets]

    def deliver(self, layer):
        for block, plain in zip(self._blocks, self._plain[layer].swapaxes(0, 1)):
            self._kv.layers[layer][block][self._kv.offsets] = plain
