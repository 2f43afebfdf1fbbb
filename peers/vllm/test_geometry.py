"""Which models the connector takes, of vLLM's own descriptions of their blocks; no engine."""

from unittest.mock import MagicMock

import pytest
import torch
from shale.connector_options import Options
from shale.vllm import Geometry
from vllm.v1.kv_cache_interface import FullAttentionSpec, MLAAttentionSpec, SlidingWindowSpec

OPTIONS = Options.parse({"tiers": "memory:?size=1MiB", "model": "test"})


def geometry(*specs):
    config = MagicMock()
    config.parallel_config.world_size = 1
    config.cache_config.prefix_caching_hash_algo = "sha256"
    groups = [MagicMock(kv_cache_spec=spec, layer_names=["layer"]) for spec in specs]
    return Geometry(config, MagicMock(kv_cache_groups=groups), OPTIONS)


def spec(kind=FullAttentionSpec, **more):
    return kind(block_size=128, head_size=64, dtype=torch.bfloat16, **{"num_kv_heads": 3, **more})


def test_full_attention_is_taken():
    assert geometry(spec()).shape == (1, 3, 64, 128, torch.bfloat16)


@pytest.mark.parametrize("specs", [
    [spec(MLAAttentionSpec, num_kv_heads=1)],
    [spec(head_size_v=32)],
    [spec(SlidingWindowSpec, sliding_window=256)],
    [spec(), spec(SlidingWindowSpec, sliding_window=256)],
])
def test_others_are_refused_at_the_start(specs):
    with pytest.raises(ValueError, match="secondary tier"):
        geometry(*specs)
