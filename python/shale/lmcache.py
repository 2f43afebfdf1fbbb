"""LMCache over Shale's store: `ShaleConnector` is its `native_plugin`, `ShaleSerializer` and `ShaleDeserializer` are
its serde `shale`.

    {"type": "native_plugin", "module_path": "shale.lmcache", "class_name": "ShaleConnector",
     "adapter_params": {"tiers": "file:///var/kv?size=1TiB"}}

Keys name the model, the rank, the group and a hash of the tokens. What else must agree, such as the weights and the
type of keys and values, is in `name_space`.
"""

import struct

import numpy as np

from . import _shale
from .byte_store import ByteStore

_FRAME = struct.Struct("<4sHHQ")  # "SHLK", version, length of the method's name, bytes of codes


class ShaleConnector(ByteStore):
    """See byte_store.py, whose methods are those that LMCache calls."""

    def __init__(self, tiers, tenant="", staging="256MiB", timeout_s=30.0, name_space="lmcache"):
        super().__init__(name_space, tiers, tenant=tenant, staging=staging, timeout_s=timeout_s)
        try:
            register_serde()
        except ImportError:
            pass  # used without LMCache


def register_serde():
    """Makes the serde `shale` known to LMCache: {"type": "shale", "method": "int8", "head_dim": 128}. A ShaleConnector
    does so, too; call it for other adapters."""
    from lmcache.v1.distributed.serde import (
        AsyncSerdeProcessor, get_registered_serde_types, register_serde_factory)

    def create(options):
        workers = int(options.get("max_workers", 1))
        given = {name: options[name] for name in ("method", "head_dim") if name in options}
        return AsyncSerdeProcessor(ShaleSerializer(**given), ShaleDeserializer(**given), max_workers=workers)

    if "shale" not in get_registered_serde_types():
        register_serde_factory("shale", create)


class _Codec:
    """Chunks are tensors [2 (keys, values)][layers][tokens][KV heads · channels], or [layers][…] of one alone."""

    def __init__(self, method="int8", head_dim=64):
        if method not in _shale.quantizers() or method in ("none", "cachegen"):
            raise ValueError(f"shale: method {method!r}: give a quantizer that keeps every token, as int8 or kivi4 do")
        self.method, self.head_dim = method, int(head_dim)

    def heads_of(self, shape):
        """(layers · heads, tokens), of a chunk's shape."""
        if len(shape) != 4 or shape[0] != 2 or shape[3] % self.head_dim:
            raise ValueError(f"shale: a chunk of shape {tuple(shape)}: [2][layers][tokens][KV heads of {self.head_dim} "
                             "channels] can be coded; give the model's head_dim")
        return shape[1] * (shape[3] // self.head_dim), shape[2]

    def by_head(self, tensor):
        """[2][layers · heads][tokens][channels], a copy in half precision."""
        two, layers, tokens, width = tensor.shape
        heads = width // self.head_dim
        parts = tensor.reshape(two, layers, tokens, heads, self.head_dim).permute(0, 1, 3, 2, 4)
        return parts.reshape(two, layers * heads, tokens, self.head_dim)


class ShaleSerializer(_Codec):
    """Into fewer bits, by the codecs of Shale's own engine (docs/methods/quantizers.md). Whoever configures it chooses
    a loss that every reader gets."""

    def serialize(self, src, dst, key):
        tensor = src.tensor
        count, tokens = self.heads_of(tensor.shape)
        keys, values = (side.half().contiguous().numpy().view(np.uint16) for side in self.by_head(tensor))
        codes = np.concatenate([_shale._encode(self.method, k, v) for k, v in zip(keys, values)])
        frame = _FRAME.pack(b"SHLK", 1, len(self.method), len(codes)) + self.method.encode()
        written = np.concatenate([np.frombuffer(frame, np.uint8), codes])
        target = np.frombuffer(dst.byte_array, np.uint8)
        if len(written) > len(target):
            raise ValueError(f"shale: {len(written)} bytes of codes for a buffer of {len(target)}")
        target[:len(written)] = written
        return len(written)

    def estimate_serialized_size(self, layout_desc):
        total = 0
        for shape in layout_desc.shapes:
            count, tokens = self.heads_of(tuple(shape))
            nothing = np.zeros((tokens, self.head_dim), np.uint16)
            total += count * len(_shale._encode(self.method, nothing, nothing)) + _FRAME.size + len(self.method)
        return total


class ShaleDeserializer(_Codec):
    def deserialize(self, src, dst, key):
        import torch
        tensor = dst.tensor
        count, tokens = self.heads_of(tensor.shape)
        data = np.frombuffer(src.byte_array, np.uint8)
        magic, version, length, size = _FRAME.unpack(bytes(data[:_FRAME.size]))
        if magic != b"SHLK" or version != 1 or _FRAME.size + length + size > len(data):
            raise ValueError("shale: these are not codes of ShaleSerializer, or not all of them")
        method = bytes(data[_FRAME.size:_FRAME.size + length]).decode()
        if method != self.method or size % count:
            raise ValueError(f"shale: {size} bytes of codes by {method} for {count} heads by {self.method}")
        codes = data[_FRAME.size + length:_FRAME.size + length + size].reshape(count, -1)
        sides = [_shale._decode(method, np.ascontiguousarray(code), tokens, self.head_dim) for code in codes]
        two, layers, tokens, width = tensor.shape
        for side in range(2):
            heads = torch.from_numpy(np.stack([pair[side] for pair in sides]).view(np.float16))
            heads = heads.reshape(layers, width // self.head_dim, tokens, self.head_dim).permute(0, 2, 1, 3)
            tensor[side] = heads.reshape(layers, tokens, width).to(tensor.dtype)
