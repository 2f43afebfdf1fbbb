"""A store closes with vLLM's connectors, not with the process; no engine."""

import gc
from unittest.mock import MagicMock

import torch
from shale import vllm
from shale.vllm import KVConnectorRole, ShaleConnector
from vllm.v1.kv_cache_interface import FullAttentionSpec


def test_the_store_closes_with_the_last_connector_that_has_it(tmp_path):
    config = MagicMock()
    config.parallel_config.world_size = 1
    config.cache_config.prefix_caching_hash_algo = "sha256"
    config.kv_transfer_config.kv_connector_extra_config = {"tiers": f"file://{tmp_path}?size=1MiB", "model": "test"}
    spec = FullAttentionSpec(block_size=128, num_kv_heads=3, head_size=64, dtype=torch.bfloat16)
    caches = MagicMock(kv_cache_groups=[MagicMock(kv_cache_spec=spec, layer_names=["layer"])])
    connectors = [ShaleConnector(config, KVConnectorRole.SCHEDULER, caches) for _ in range(2)]
    for connector, open_after in zip(connectors, (1, 0)):
        assert len(vllm._stores) == 1
        connector.shutdown()
        gc.collect()
        assert len(vllm._stores) == open_after
