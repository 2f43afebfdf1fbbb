"""vLLM's KV connector over Shale's store, for processors: prompts computed once are loaded by every later process.

    vllm serve MODEL --kv-transfer-config '{"kv_connector": "ShaleConnector", "kv_connector_module_path": "shale.vllm",
        "kv_role": "kv_both", "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {"tiers": "file:///var/kv?size=100GiB"}}'

docs/guides/vllm.md says what the options do. What decides and moves is in connector.py; here vLLM's calls are handed
on, and what must agree before KV may be used again is named.
"""

import copy
import os
import threading
import weakref

import torch
import vllm
from vllm import envs
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1, KVConnectorMetadata, KVConnectorRole, KVConnectorWorkerMetadata)
from vllm.logger import init_logger
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core.kv_cache_utils import DEFAULT_NONE_HASH_SEED, get_request_block_hasher
from vllm.v1.kv_cache_interface import FullAttentionSpec

from .connector import Plan, Report, Scheduler, Worker
from .connector_options import Options, warn_of_trouble
from .model_identity import Adapters, served_identity
from .paged import PagedKv, learn_offsets
from .request_keys import RequestKeys
from .store import Store
from .vllm_metrics import ShaleMetrics, ShaleStats

TESTED = ("0.32.0",)
_ELEMENTS = {torch.bfloat16: ("bf16", torch.uint16), torch.float16: ("fp16", torch.uint16),
             torch.float32: ("fp32", torch.uint32)}

logger = init_logger("vllm.shale")


class _Plan(Plan, KVConnectorMetadata):
    """From the scheduler's process to the worker's."""


class _Report(Report, KVConnectorWorkerMetadata):
    def aggregate(self, other, **_):
        return super().aggregate(other)


class Geometry:
    """What keys and values of a model are like, and what the store calls them."""

    def __init__(self, vllm_config, kv_cache_config, options):
        groups = kv_cache_config.kv_cache_groups
        spec = groups[0].kv_cache_spec if len(groups) == 1 else None
        # Kinds of it (MLA, ring buffers) keep something else in their blocks.
        if type(spec) is not FullAttentionSpec or spec.head_size_v != spec.head_size:
            raise ValueError("shale: models whose layers are not all of full attention, with keys and values of one "
                             "size, are not supported by the connector: use the secondary tier (docs/guides/vllm.md)")
        if vllm_config.parallel_config.world_size > 1:
            raise ValueError("shale: the connector serves one worker; with tensor or pipeline parallelism, use the "
                             "secondary tier (docs/guides/vllm.md)")
        if spec.dtype not in _ELEMENTS:
            raise ValueError(f"shale: a KV cache of {spec.dtype} is not supported: bfloat16, float16 or float32")
        self.layers = list(groups[0].layer_names)
        self.heads, self.dim, self.block_tokens = spec.num_kv_heads, spec.head_size, spec.block_size
        self.dtype = spec.dtype
        cache = vllm_config.cache_config
        self.hash_name = cache.prefix_caching_hash_algo
        if not cache.enable_prefix_caching:
            raise ValueError("shale: blocks are found by vLLM's own hashes: do not turn prefix caching off")
        seed = os.getenv("PYTHONHASHSEED", DEFAULT_NONE_HASH_SEED)
        if not self.hash_name.startswith("sha256") and "PYTHONHASHSEED" not in os.environ:
            raise ValueError(f"shale: block hashes by {self.hash_name} differ from process to process: set "
                             "PYTHONHASHSEED to one value everywhere, or use --prefix-caching-hash-algo sha256")
        self.name_space = (f"vllm 1; model {options.model or served_identity(vllm_config)}; "
                           f"hash {self.hash_name}, seed {seed}")

    @property
    def shape(self):
        return len(self.layers), self.heads, self.dim, self.block_tokens, self.dtype

    def open(self, options, tiers):
        return Store(self.name_space, tiers, layers=len(self.layers), kv_heads=self.heads, head_dim=self.dim,
                     block_tokens=self.block_tokens, element=_ELEMENTS[self.dtype][0],
                     chunk_tokens=self.block_tokens * max(1, 256 // self.block_tokens),
                     staging_bytes=options.staging_bytes, late=True,
                     qualities={} if options.method == "full" else {options.method: options.quality})


_stores, _stores_lock = weakref.WeakValueDictionary(), threading.Lock()


def _open(geometry, options, role):
    """The process's one store. A scheduler in a process of its own cannot see its worker's memory."""
    tiers = options.tiers
    with _stores_lock:
        key = (geometry.name_space, geometry.shape, tiers, options.method, options.quality)
        store = _stores.get(key)
        if store is not None:
            return store
        if role == KVConnectorRole.SCHEDULER:
            tiers = ",".join(tier for tier in tiers.split(",") if not tier.startswith("memory:"))
            if not tiers:
                raise ValueError("shale: the worker runs in a process of its own: name a tier below memory:")
        store = geometry.open(options, tiers)
        warn_of_trouble(store)
        _stores[key] = store
        return store


def _block_elements(cache):
    """From a block's first element to its last, in memory."""
    return 1 + sum((size - 1) * stride for size, stride in zip(cache.shape[1:], cache.stride()[1:]))


def _bits(cache):
    """vLLM's tensor of a layer, blocks first, as an array [blocks][elements]."""
    bits = _ELEMENTS[cache.dtype][1]
    return cache.as_strided((len(cache), _block_elements(cache)), (cache.stride(0), 1)).view(bits).numpy()


def _offsets(cache, attention, geometry):
    """Where vLLM's own operation puts what is computed."""
    block = torch.empty_strided((1, *cache.shape[1:]), cache.stride(), dtype=cache.dtype)
    slots = torch.arange(geometry.block_tokens)

    def write(keys, values):
        block.zero_()
        given = [torch.from_numpy(array).to(cache.dtype) for array in (keys, values)]
        attention.impl.do_kv_cache_update(attention, *given, block, slots)
        return block.as_strided((_block_elements(cache),), (1,)).float().numpy()

    return learn_offsets(write, _block_elements(cache), (geometry.block_tokens, geometry.heads, geometry.dim))


class ShaleConnector(KVConnectorBase_V1):
    def __init__(self, vllm_config, role, kv_cache_config, **_):
        super().__init__(vllm_config, role, kv_cache_config)
        if vllm.__version__.partition("+")[0] not in TESTED:
            logger.warning("shale: tested with vLLM %s; this is %s", ", ".join(TESTED), vllm.__version__)
        transfer = vllm_config.kv_transfer_config
        self._options = Options.parse(transfer.kv_connector_extra_config)
        self._geometry = Geometry(vllm_config, kv_cache_config, self._options)
        self._store = _open(self._geometry, self._options, role)
        if transfer.kv_load_failure_policy != "recompute":
            logger.warning("shale: requests whose blocks cannot be read will fail: set "
                           '"kv_load_failure_policy": "recompute"')
        self._worker = self._scheduler = None
        self._adapters = Adapters(logger.warning)
        self._since = b""
        self._pool = None
        if role == KVConnectorRole.SCHEDULER:
            self._scheduler = Scheduler(
                self._store, self._geometry.block_tokens, asynchronous=self._options.load == "async",
                floor=self._options.floor, tenant=self._options.tenant, loads=transfer.is_kv_consumer,
                saves=transfer.is_kv_producer,
                hold=lambda blocks: self._pool.touch([self._pool.blocks[block] for block in blocks]),
                let_go=lambda blocks: self._pool.free_blocks(self._pool.blocks[block] for block in reversed(blocks)),
                evict=lambda blocks: self._pool.evict_blocks(blocks))
            self._hasher = get_request_block_hasher(self._geometry.block_tokens,
                                                    get_hash_fn_by_name(self._geometry.hash_name))

    @property
    def requires_kv_delivery(self):
        return False  # what is not saved is computed again

    # The worker's side

    def register_kv_caches(self, kv_caches, **_):
        caches = [kv_caches[name] for name in self._geometry.layers]
        attention = self._vllm_config.compilation_config.static_forward_context[self._geometry.layers[0]]
        self._layer_numbers = {name: number for number, name in enumerate(self._geometry.layers)}
        options = self._options
        before = self._worker  # of caches that are gone
        if before:
            before.close()
        kv = PagedKv([_bits(cache) for cache in caches], _offsets(caches[0], attention, self._geometry))
        logger.info("shale: vLLM's blocks are %s", "read and written in place" if kv.in_place else "repacked")
        self._worker = Worker(self._store, kv, asynchronous=options.load == "async", method=options.method,
                              quality=1.0 if options.method == "full" else options.quality, floor=options.floor,
                              tenant=options.tenant, timeout_s=options.load_timeout_s,
                              # In one process vLLM goes round no more after its last answer, to hear what is let go of.
                              copies=not envs.VLLM_ENABLE_V1_MULTIPROCESSING)
        if before:
            self._worker.take_over(before)

    def bind_connector_metadata(self, connector_metadata, **_):
        super().bind_connector_metadata(connector_metadata)
        self._worker.take(connector_metadata)

    def start_load_kv(self, forward_context, **_):
        """They began with the step."""

    # Layers that use another's keys and values have none of their own.

    def wait_for_layer_load(self, layer_name, **_):
        if layer_name in self._layer_numbers:
            self._worker.wait_layer(self._layer_numbers[layer_name])

    def save_kv_layer(self, layer_name, kv_layer, attn_metadata, **_):
        if layer_name in self._layer_numbers:
            self._worker.computed_layer(self._layer_numbers[layer_name])

    def wait_for_save(self, **_):
        self._worker.end()

    def get_finished(self, finished_req_ids, **_):
        self._worker.end_loads()  # saving may end a step later, failed blocks are told of in this one
        return None, self._worker.take_arrived() or None

    def get_block_ids_with_load_errors(self, **_):
        return self._worker.take_failed()

    def build_connector_worker_meta(self, **_):
        report = self._worker.report()
        return _Report(**vars(report)) if any(vars(report).values()) else None

    def get_kv_connector_stats(self, **_):
        if not self._worker or not self._worker.counted:
            return None
        counted = dict(self._worker.counted)
        self._worker.counted.clear()
        return ShaleStats(counted)

    @classmethod
    def build_kv_connector_stats(cls, data=None, **_):
        return ShaleStats(data or {})

    @classmethod
    def build_prom_metrics(cls, vllm_config, metric_types, labelnames, per_engine_labelvalues, **_):
        return ShaleMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)

    # The scheduler's side

    def bind_gpu_block_pool(self, gpu_block_pool, **_):
        self._pool = gpu_block_pool

    def on_new_request(self, request, **_):
        lossy = self._options.floor is not None and request.cache_salt == self._options.lossy_salt
        hashes = self._unsalted(request) if lossy else lambda: request.block_hashes
        adapter = self._adapters.name(getattr(request, "lora_request", None))
        if adapter is not None:
            self._scheduler.add(request.request_id, RequestKeys(hashes, adapter + self._since), lossy)

    def _unsalted(self, request):
        """Its keys as if it had no salt, which are those that exact blocks were saved under."""
        plain = copy.copy(request)
        plain.cache_salt, plain.block_hashes = None, []

        def keys():
            plain.block_hashes.extend(self._hasher(plain))
            return plain.block_hashes
        return keys

    def get_num_new_matched_tokens(self, request, num_computed_tokens, **_):
        if getattr(request, "skip_reading_prefix_cache", False):  # all of its logits are asked for
            return 0, False
        tokens = self._scheduler.found(request.request_id, num_computed_tokens, request.num_tokens)
        return tokens, bool(tokens) and self._options.load == "async"

    def update_state_after_alloc(self, request, blocks, num_external_tokens, **_):
        if num_external_tokens:
            self._scheduler.allocated(request.request_id, blocks.get_block_ids()[0], num_external_tokens)

    def build_connector_meta(self, scheduler_output, **_):
        cached = scheduler_output.scheduled_cached_reqs
        grown = {new.req_id: (new.block_ids, new.num_computed_tokens, True)
                 for new in scheduler_output.scheduled_new_reqs}
        grown.update((request, (blocks, computed, request in cached.resumed_req_ids)) for request, blocks, computed
                     in zip(cached.req_ids, cached.new_block_ids, cached.num_computed_tokens))
        for request, tokens in scheduler_output.num_scheduled_tokens.items():
            blocks, begin, anew = grown[request]
            blocks = blocks[0] if blocks else ()
            if not anew and not self._scheduler.covers(request, len(blocks), begin + tokens):
                logger.warning_once("shale: vLLM did not tell of all blocks of a request as it grew")
                (blocks,), anew = scheduler_output.kv_connector_block_state.get_block_ids(request), True
            self._scheduler.computing(request, blocks, begin, begin + tokens, anew)
        plan = self._scheduler.plan(idle=scheduler_output.total_num_scheduled_tokens == 0)
        return _Plan(**vars(plan))

    def update_connector_output(self, connector_output, **_):
        self._scheduler.reported(connector_output.kv_connector_worker_meta, connector_output.invalid_block_ids)

    def request_finished(self, request, block_ids, **_):
        self._scheduler.finished(request.request_id)
        return False, None

    def reset_cache(self, **_):
        """Weights may have changed in place, which nothing here could name: what was stored so far is not found any
        more, and what is stored from now on is this process's alone."""
        if self._scheduler:
            self._scheduler.forget()
            self._since = os.urandom(16)
        return True

    def has_pending_push_work(self, **_):
        return self._scheduler.saving

    def has_pending_block_frees(self, **_):
        """Whether blocks are held that nobody else has: others become free with their requests alone."""
        return any(self._pool.blocks[block].ref_cnt == holds for block, holds in self._scheduler.holds.items())

    # Both

    def shutdown(self, **_):
        """The store closes, and what is being written is, with the last connector of the process that has it."""
        if self._worker:
            self._worker.close()
        self._worker = self._scheduler = self._store = None
