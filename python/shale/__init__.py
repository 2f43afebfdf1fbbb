"""Shale's scorers, budgets and quantizers on numpy arrays, and its store for KV in any engine's memory.

Keys are as a model caches them (after RoPE), tokens in order of position; scores are higher = keep. The code is the one
that the engine runs; docs/methods of the project defines each method.
"""

import numpy as _np

from . import _shale
from ._shale import budgets, keep, quantizers, ranking, score, scorers
from .store import Event, Failure, Load, Lookup, Run, Save, Store, StoreError, View, block_keys

__all__ = ["Event", "Failure", "Load", "Lookup", "Run", "Save", "Store", "StoreError", "View", "block_keys", "budgets",
           "decode", "encode", "keep", "quantizers", "ranking", "score", "scorers"]


def encode(quantizer, keys, values):
    """The codes (uint8) of one head's keys and values, float16 [tokens, head dimension]."""
    halves = [_np.ascontiguousarray(array, dtype=_np.float16).view(_np.uint16) for array in (keys, values)]
    return _shale._encode(quantizer, *halves)


def decode(quantizer, codes, tokens, head_dim):
    """Keys and values, float16 [tokens, head_dim], as `encode`'s codes give them back."""
    return tuple(array.view(_np.float16) for array in _shale._decode(quantizer, codes, tokens, head_dim))
