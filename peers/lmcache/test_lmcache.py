"""Shale's plug-ins in LMCache's own classes: `./shale test --peers lmcache`. LMCache's adapter drives the connector,
its processor the codecs, as its storage manager does; an engine is not needed."""

import select
import time

import pytest
import torch
from lmcache.v1.distributed.api import MemoryLayoutDesc, ObjectKey
from lmcache.v1.distributed.l2_adapters.native_plugin_l2_adapter import (
    NativePluginL2AdapterConfig, _create_native_plugin_l2_adapter)
from lmcache.v1.distributed.serde import SerdeConfig, create_serde_processor
from lmcache.v1.memory_management import MemoryFormat, MemoryObjMetadata, TensorMemoryObj

SHAPE, HEAD_DIM = torch.Size([2, 4, 256, 128]), 64


def adapter_on(folder):
    return _create_native_plugin_l2_adapter(NativePluginL2AdapterConfig.from_dict({
        "type": "native_plugin", "module_path": "shale.lmcache", "class_name": "ShaleConnector",
        "adapter_params": {"tiers": f"file://{folder}?size=256MiB"}, "max_capacity_gb": 1}))


def memory_of(tensor):
    raw = tensor.contiguous().view(-1).view(torch.uint8)
    return TensorMemoryObj(raw, MemoryObjMetadata(tensor.shape, tensor.dtype, 0, len(raw), 1, fmt=MemoryFormat.KV_2LTD,
                                                  shapes=[tensor.shape], dtypes=[tensor.dtype]), None)


def wait(fd, result):
    until = time.monotonic() + 30
    while time.monotonic() < until:
        select.select([fd], [], [], 0.05)
        if (got := result()) not in (None, {}):
            return got
    raise AssertionError("nothing ended")


def keys_of(count, salt=""):
    return [ObjectKey(bytes([place]) * 16, "org/model", 1, cache_salt=salt) for place in range(count)]


def found(adapter, keys):
    task = adapter.submit_lookup_and_lock_task(keys, {})
    bits = wait(adapter.get_lookup_and_lock_event_fd(), lambda: adapter.query_lookup_and_lock_result(task))
    return [bits.test(place) for place in range(len(keys))]


def test_the_adapter_stores_finds_loads_and_deletes(tmp_path):
    keys, chunks = keys_of(5), [memory_of(torch.randn(SHAPE, dtype=torch.bfloat16)) for _ in range(5)]
    adapter = adapter_on(tmp_path)
    assert found(adapter, keys) == [False] * 5
    task = adapter.submit_store_task(keys[:4], chunks[:4])
    stored = wait(adapter.get_store_event_fd(), adapter.pop_completed_store_tasks)
    assert task in stored and adapter.get_usage().total_bytes_used == 4 * len(chunks[0].byte_array)
    adapter.close()

    adapter = adapter_on(tmp_path)
    assert found(adapter, keys) == [True] * 4 + [False] and found(adapter, keys_of(4, "other")) == [False] * 4
    read = [memory_of(torch.zeros(SHAPE, dtype=torch.bfloat16)) for _ in range(5)]
    task = adapter.submit_load_task(keys, read)
    bits = wait(adapter.get_load_event_fd(), lambda: adapter.query_load_result(task))
    assert [bits.test(place) for place in range(5)] == [True] * 4 + [False]
    assert all(bytes(a.byte_array) == bytes(b.byte_array) for a, b in zip(read[:4], chunks))
    adapter.delete(keys[:1])
    assert found(adapter, keys) == [False] + [True] * 3 + [False]
    adapter.close()


@pytest.mark.parametrize("method, times, error", [("int8", 1.9, 0.02), ("kivi4", 3.1, 0.2)])
def test_the_serde_codes_chunks(tmp_path, method, times, error):
    adapter_on(tmp_path).close()  # makes the serde known
    serde = create_serde_processor(SerdeConfig("shale", {"method": method, "head_dim": HEAD_DIM}))
    chunk = memory_of(torch.randn(SHAPE, dtype=torch.bfloat16))
    size = serde.estimate_serialized_size(MemoryLayoutDesc([SHAPE], [torch.bfloat16]))
    assert len(chunk.byte_array) / size >= times
    coded, back = memory_of(torch.zeros(size, dtype=torch.uint8)), memory_of(torch.zeros(SHAPE, dtype=torch.bfloat16))
    key = keys_of(1)
    task = serde.submit_serialize([chunk], [coded], key)
    assert wait(serde.get_serialize_event_fd(), lambda: serde.query_serialize_result(task))
    task = serde.submit_deserialize([coded], [back], key)
    assert wait(serde.get_deserialize_event_fd(), lambda: serde.query_deserialize_result(task))
    moved = (back.tensor.float() - chunk.tensor.float()).square().mean().sqrt()
    assert 0 < moved < error
    serde.close()
