"""Shale's store as a secondary tier of vLLM's own offloading, for GPUs and processors alike.

    "kv_connector": "OffloadingConnector", "kv_connector_extra_config": {
        "spec_name": "ShaleOffloadingSpec", "spec_module_path": "shale.vllm_tier", "cpu_bytes_to_use": 8589934592,
        "secondary_tiers": [{"type": "ShaleTier", "module_path": "shale.vllm_tier",
                             "tiers": "file:///var/kv?size=1TiB"}]}

vLLM brings chunks of all its workers into memory that it shares with this class, and they are stored from there as
bytes that only the same model on the same layout understands: exactly, never in fewer bits. On GPUs vLLM's own spec
(TieringOffloadingSpec) does as well; the one here also runs on processors.
"""

import collections
import json
import time

import numpy as np
import torch
from vllm.platforms import current_platform
from vllm.v1.kv_offload.base import LookupResult, Medium, OffloadingWorker, RequestOffloadingContext, TransferResult
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.file_mapper import FileMapper
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec

from .byte_store import PATIENCE_S, ByteStore
from .connector_options import warn_of_unknown
from .model_identity import named_weights


class ShaleTier(SecondaryTierManager):
    medium = Medium.STORAGE

    def __init__(self, offloading_spec, primary_kv_view, tier_type, backpressure_detector=None, *, tiers, tenant="",
                 model="", staging="256MiB", load_timeout_s=30.0, **unknown):
        warn_of_unknown(unknown, ("tiers", "tenant", "model", "staging", "load_timeout_s"))
        super().__init__(offloading_spec, primary_kv_view, tier_type, backpressure_detector)
        self._chunks = np.asarray(primary_kv_view)  # [chunks][bytes]
        self._bytes = ByteStore(_name_space(offloading_spec, model), tiers, tenant=tenant, staging=staging,
                                timeout_s=load_timeout_s)
        self._jobs = {}  # by batch: vLLM's number of the job, its keys, when it began, whose it is
        self._refused = []  # results of jobs for chunks that there are not
        self._asked = {}  # by request: until when it waits for shared tiers that are still being asked
        self._missing = collections.defaultdict(set)  # by request: keys that did not come, so that it computes them

    def lookup(self, key, req_context, **_):
        request = req_context.req_id
        until = self._asked.setdefault(request, time.monotonic() + PATIENCE_S)
        if key in self._missing.get(request, ()):
            return LookupResult.MISS
        there, pending = self._bytes.look_up(key, self.block_size_bytes)
        if there:
            return LookupResult.HIT
        return LookupResult.RETRY if pending and time.monotonic() < until else LookupResult.MISS

    def on_request_finished(self, req_context, **_):
        self._asked.pop(req_context.req_id, None)
        self._missing.pop(req_context.req_id, None)

    def touch(self, keys, req_context, **_):
        for key in keys:
            self._bytes.touch(key)

    def submit_store(self, job_metadata, **_):
        self._submit(self._bytes.submit_batch_set, job_metadata)

    def submit_load(self, job_metadata, **_):
        self._submit(self._bytes.submit_batch_get, job_metadata)

    def _submit(self, call, job):
        keys = list(job.keys)
        if len(job.chunk_ids) and not 0 <= min(job.chunk_ids) <= max(job.chunk_ids) < len(self._chunks):
            self._refused.append(JobResult(job.job_id, False))
            if job.is_promotion:
                self._miss(job.req_context.req_id, keys)
            return
        batch = call(keys, [self._chunks[number] for number in job.chunk_ids])
        self._jobs[batch] = (job.job_id, keys, time.monotonic(), job.req_context.req_id if job.is_promotion else None)

    def get_finished_jobs(self, **_):
        refused, self._refused = self._refused, []
        return refused + [self._result(batch, came) for batch, _, _, came in self._bytes.drain_completions()]

    def _result(self, batch, came):
        job, keys, begun, request = self._jobs.pop(batch)
        good = [key for key, well in zip(keys, came) if well]
        if request is not None and not all(came):
            self._miss(request, set(keys).difference(good))
        return JobResult(job, all(came), successful_keys=good if good and not all(came) else None,
                         transfer_time=time.monotonic() - begun, transfer_bytes=len(good) * self.block_size_bytes)

    def _miss(self, request, keys):
        if request in self._asked:  # else it has ended
            self._missing[request].update(keys)

    def has_pending_work(self, **_):
        return bool(self._jobs or self._refused)

    def on_new_request(self, req_context, **_):
        return RequestOffloadingContext()

    def drain_jobs(self, **_):
        self._bytes.wait_all()

    def shutdown(self, **_):
        self._bytes.close()


def _name_space(spec, model):
    """What must agree: vLLM's own list for shared folders, the weights, and how a processor packs its blocks."""
    fields = dict(FileMapper.from_offloading_spec("", spec, spec.blocks_per_chunk, parallel_agnostic=True).fields)
    name = fields.pop("model_name")
    fields["model"] = model or named_weights(name, refuse_long_rope=True)  # the spec does not tell the length
    if current_platform.is_cpu():
        from vllm.v1.attention.backends.cpu_attn import _get_attn_isa
        dtype = getattr(torch, str(spec.config.model.dtype).removeprefix("torch."), torch.bfloat16)
        fields["packing"] = _get_attn_isa(dtype, spec.config.groups[0].tokens_per_block)
    return "vllm chunks 1; " + json.dumps(fields, sort_keys=True)


class ShaleOffloadingSpec(TieringOffloadingSpec):
    """vLLM's own, and on processors, whose blocks lie in memory already, with a copy."""

    def get_worker(self, kv_caches, **more):
        if not current_platform.is_cpu():
            return super().get_worker(kv_caches, **more)
        if self._worker is None:
            region = SharedOffloadRegion(
                engine_id=self._engine_id, num_chunks=self.num_chunks, rank=self.config.parallel.rank,
                kv_bytes_per_chunk=self.kv_bytes_per_chunk, cpu_page_size=self.cpu_page_size_per_worker)
            self._worker = _CopyingWorker(kv_caches, self.blocks_per_chunk, region)
        return self._worker


class _CopyingWorker(OffloadingWorker):
    """Copies blocks between vLLM's cache and the shared region, at once."""

    def __init__(self, kv_caches, blocks_per_chunk, region):
        self._region, self._per_chunk = region, blocks_per_chunk
        self._layers_of_group = kv_caches.group_data_refs
        self._caches, self._chunks = [], []
        for layer in kv_caches.tensors:
            size = layer.page_size_bytes
            self._caches.append(layer.tensor.view(torch.int8).view(-1, size))
            chunks = region.create_next_worker_view(size * blocks_per_chunk)
            self._chunks.append(chunks.unflatten(1, (blocks_per_chunk, size)))
        self._finished = []

    def submit_store(self, job_id, src_spec, dst_spec, **_):
        return self._copy(job_id, src_spec, dst_spec, True)

    def submit_load(self, job_id, src_spec, dst_spec, **_):
        return self._copy(job_id, dst_spec, src_spec, False)

    def _copy(self, job_id, blocks_of, chunks_of, store):
        begun, copied, first_block, first_chunk = time.monotonic(), 0, 0, 0
        for count, at, layers in zip(blocks_of.group_sizes, blocks_of.block_indices, self._layers_of_group):
            if count == 0:
                continue
            blocks = torch.from_numpy(blocks_of.block_ids[first_block:first_block + count].astype(np.int64))
            places = at % self._per_chunk + np.arange(count)
            chunks = torch.from_numpy(chunks_of.block_ids[first_chunk + places // self._per_chunk].astype(np.int64))
            parts = torch.from_numpy(places % self._per_chunk)
            for layer in layers:
                cache, chunk = self._caches[layer.tensor_idx], self._chunks[layer.tensor_idx]
                if store:
                    chunk[chunks, parts] = cache[blocks]
                else:
                    cache[blocks] = chunk[chunks, parts]
                copied += count * layer.page_size_bytes
            first_block += count
            first_chunk += int(places[-1]) // self._per_chunk + 1
        self._finished.append(TransferResult(job_id, True, copied, time.monotonic() - begun))
        return True

    def get_finished(self, **_):
        finished, self._finished = self._finished, []
        return finished

    def wait(self, job_ids, **_):
        """All have ended when they were asked for."""

    def shutdown(self, **_):
        self._caches, self._chunks = [], []
        self._region.cleanup()
