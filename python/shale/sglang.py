"""SGLang's hierarchical cache over Shale's store:

    --enable-hierarchical-cache --hicache-storage-backend dynamic --hicache-storage-backend-extra-config
        '{"backend_name": "shale", "module_path": "shale.sglang", "class_name": "ShaleStorage", "interface_v1": 1,
          "tiers": "file:///var/kv?size=1TiB"}'

Pages are kept exactly, as bytes, by the keys that SGLang gives them; with a layout of pages first (--hicache-mem-layout
page_first) they are read and written where they lie.

SGLang tells the name that it serves the model under. Where that is neither its path nor its name on Hugging Face, the
option `model` says which weights they are; others need another one.
"""

import ctypes
import json

import torch
from sglang.srt.mem_cache.hicache_storage import HiCacheStorage

from .byte_store import ByteStore
from .connector_options import warn_of_unknown
from .model_identity import named_weights

_SGLANGS = ("backend_name", "module_path", "class_name", "interface_v1", "prefetch_threshold", "prefetch_timeout_base",
            "prefetch_timeout_per_ki_token", "hicache_storage_pass_prefix_keys")
_OPTIONS = ("tiers", "tenant", "staging", "timeout_s", "model")


class ShaleStorage(HiCacheStorage):
    def __init__(self, storage_config, kwargs=None):
        given = storage_config.extra_config or {}
        self._options = {name: value for name, value in given.items() if name in _OPTIONS}
        if "tiers" not in self._options:
            raise ValueError("shale: give `tiers` in --hicache-storage-backend-extra-config, such as "
                             "file:///var/kv?size=100GiB")
        warn_of_unknown(set(given).difference(_OPTIONS, _SGLANGS), _OPTIONS)
        self._model = self._options.pop("model", "") or named_weights(storage_config.model_name)
        self._config = storage_config
        self._pages_first = storage_config.is_page_first_layout

    def register_mem_pool_host(self, mem_pool_host):
        """Opens the store: what the pages' bytes are is known from here on."""
        super().register_mem_pool_host(mem_pool_host)
        of_device = getattr(mem_pool_host, "device_pool", mem_pool_host)  # the host's is of bytes where that has 8 bits
        layout = getattr(mem_pool_host, "layout", "page_first" if self._pages_first else "")
        self._bytes = ByteStore(_name_space(self._config, self._model, of_device.dtype, layout), **self._options)

    # In place, by the indices of tokens in SGLang's host pool

    def batch_get_v1(self, keys, host_indices, extra_info=None):
        if self._pages_first:
            return self._parts(self._bytes.submit_batch_get, keys, host_indices)
        pool, size = self.mem_pool_host, self.mem_pool_host.page_size
        pages = [pool.get_dummy_flat_data_page() for _ in keys]
        came = self._bytes.wait(self._bytes.submit_batch_get(keys, [_bytes(page) for page in pages]))
        for place, page in enumerate(pages):
            if came[place]:
                pool.set_from_flat_data_page(int(host_indices[place * size]), page)
        return came

    def batch_set_v1(self, keys, host_indices, extra_info=None):
        if self._pages_first:
            return self._parts(self._bytes.submit_batch_set, keys, host_indices)
        pool, size = self.mem_pool_host, self.mem_pool_host.page_size
        pages = [pool.get_data_page(int(host_indices[place * size])).contiguous() for place in range(len(keys))]
        return self._bytes.wait(self._bytes.submit_batch_set(keys, [_bytes(page) for page in pages]))

    def _parts(self, submit, keys, host_indices):
        """A page is one part or several, keys and values; it is there where all are."""
        addresses, sizes = self.mem_pool_host.get_page_buffer_meta(host_indices)
        parts = len(addresses) // len(keys) if keys else 1
        names = [_part(key, part) for key in keys for part in range(parts)]
        buffers = [(ctypes.c_ubyte * size).from_address(address) for address, size in zip(addresses, sizes)]
        came = self._bytes.wait(submit(names, buffers))
        return [all(came[at:at + parts]) for at in range(0, len(came), parts)]

    # By tensor

    def get(self, key, target_location=None, target_sizes=None):
        return self.batch_get([key], [target_location])[0]

    def batch_get(self, keys, target_locations=None, target_sizes=None):
        if not target_locations or any(target is None for target in target_locations):
            raise ValueError("shale: pages are read into memory that the caller gives: target_locations")
        came = self._bytes.wait(self._bytes.submit_batch_get(keys, [_bytes(target) for target in target_locations]))
        return [target if well else None for target, well in zip(target_locations, came)]

    def set(self, key, value=None, target_location=None, target_sizes=None):
        return self.batch_set([key], [target_location if value is None else value])

    def batch_set(self, keys, values=None, target_locations=None, target_sizes=None):
        pages = [_bytes(value.contiguous()) for value in (target_locations if values is None else values)]
        return all(self._bytes.wait(self._bytes.submit_batch_set(keys, pages)))

    def exists(self, key):
        return self._bytes.exists(key)[0]

    def batch_exists(self, keys, extra_info=None):
        there = self._bytes.exists(*keys)
        return next((place for place, one in enumerate(there) if not one), len(keys))

    def get_stats(self):
        return None  # of SGLang's own kind; ShaleStorage.stats() are the store's

    def stats(self):
        return self._bytes.stats()

    def close(self):
        if hasattr(self, "_bytes"):
            self._bytes.close()


def _part(key, part):
    return key if part == 0 else f"{key}/{part}"


def _bytes(tensor):
    if tensor.device.type != "cpu" or not tensor.is_contiguous():
        raise ValueError("shale: pages are contiguous tensors in host memory")
    return tensor.view(-1).view(torch.uint8).numpy()


def _name_space(config, model, dtype, layout):
    """What must agree: weights, the share of them that this rank computes, and the layout of the host's pages."""
    rank = [] if config.is_mla_model else [config.tp_rank, config.tp_size]
    facts = {"rank": rank + [config.pp_rank, config.pp_size, config.attn_cp_rank, config.attn_cp_size, config.dcp_rank,
                             config.dcp_size],
             "page": config.logical_page_size, "layout": layout, "dtype": str(dtype),
             "model": model}
    return "sglang 3; " + json.dumps(facts, sort_keys=True)
