"""Shale's storage backend made by SGLang's own factory and called as its cache controller calls one:
`./shale test --peers sglang`. SGLang's build for processors is not on the Python index: the host pool is a stand-in."""

import torch
from sglang.srt.mem_cache.hicache_storage import HiCacheStorage, HiCacheStorageConfig, HiCacheStorageExtraInfo
from sglang.srt.mem_cache.storage.backend_factory import StorageBackendFactory

import pytest

LAYERS, PAGE, WIDTH, PAGES = 3, 16, 128, 12


class HostPool:
    """Pages of keys and values, as SGLang's MHATokenToKVPoolHost has them."""

    page_size = PAGE
    dtype = torch.bfloat16

    def __init__(self, pages_first):
        self.pages_first = pages_first
        shape = (2, PAGES, LAYERS, PAGE, WIDTH) if pages_first else (2, LAYERS, PAGES, PAGE, WIDTH)
        self.kv_buffer = torch.randn(shape).to(torch.bfloat16)

    def _page(self, index):
        at = index // PAGE
        return self.kv_buffer[:, at] if self.pages_first else self.kv_buffer[:, :, at]

    def get_data_page(self, index, flat=True):
        return self._page(index).flatten()

    def get_dummy_flat_data_page(self):
        return torch.zeros(2 * LAYERS * PAGE * WIDTH, dtype=torch.bfloat16)

    def set_from_flat_data_page(self, index, page):
        self._page(index)[:] = page.view(2, LAYERS, PAGE, WIDTH)

    def get_page_buffer_meta(self, indices):
        size = LAYERS * PAGE * WIDTH * 2
        addresses = [self.kv_buffer[side, int(index) // PAGE].data_ptr()
                     for index in indices[::PAGE] for side in (0, 1)]
        return addresses, [size] * len(addresses)


def backend(folder, pages_first=False, **more):
    config = {"tp_rank": 0, "tp_size": 1, "pp_rank": 0, "pp_size": 1, "attn_cp_rank": 0, "attn_cp_size": 1,
              "is_mla_model": False, "enable_storage_metrics": False, "is_page_first_layout": pages_first,
              "model_name": "org/model", **more,
              "extra_config": {"backend_name": "shale", "module_path": "shale.sglang", "class_name": "ShaleStorage",
                               "interface_v1": 1, "tiers": f"file://{folder}?size=256MiB", "model": "made"}}
    pool = HostPool(pages_first)
    made = StorageBackendFactory.create_backend("dynamic", HiCacheStorageConfig(**config), pool)
    assert isinstance(made, HiCacheStorage)
    made.register_mem_pool_host(pool)
    return made, pool


def indices(pages):
    return torch.cat([torch.arange(page * PAGE, (page + 1) * PAGE) for page in pages])


@pytest.mark.parametrize("pages_first", [False, True])
def test_pages_come_back_into_other_places(tmp_path, pages_first):
    keys = [f"{place:064x}" for place in range(6)]
    first, pool = backend(tmp_path, pages_first)
    assert first.batch_exists(keys) == 0
    extra = HiCacheStorageExtraInfo(prefix_keys=[])
    assert first.batch_set_v1(keys[:5], indices([0, 1, 2, 3, 4]), extra) == [True] * 5
    first.close()
    second, other = backend(tmp_path, pages_first)
    assert second.batch_exists(keys, extra) == 5 and second.exists(keys[4]) and not second.exists(keys[5])
    assert second.batch_get_v1(keys, indices([11, 9, 7, 5, 3, 1]), extra) == [True] * 5 + [False]
    for place, page in enumerate([11, 9, 7, 5, 3]):
        assert torch.equal(other.get_data_page(page * PAGE), pool.get_data_page(place * PAGE))
    second.close()
    rank, _ = backend(tmp_path, pages_first, tp_rank=1, tp_size=2)
    assert rank.batch_exists(keys) == 0, "another rank's share is another's"
    rank.close()


def test_pages_by_tensor(tmp_path):
    made, pool = backend(tmp_path)
    pages = [pool.get_data_page(place * PAGE) for place in range(3)]
    assert made.batch_set(["a", "b"], pages[:2]) and made.set("c", pages[2])
    read = made.batch_get(["a", "missing", "c"], [pool.get_dummy_flat_data_page() for _ in range(3)])
    assert torch.equal(read[0], pages[0]) and read[1] is None and torch.equal(read[2], pages[2])
    assert torch.equal(made.get("b", pool.get_dummy_flat_data_page()), pages[1])
    made.close()


def test_what_is_missing_is_named(tmp_path):
    config = HiCacheStorageConfig(0, 1, 0, 1, 0, 1, False, False, False, "org/model", extra_config={})
    from shale.sglang import ShaleStorage
    with pytest.raises(ValueError, match="tiers"):
        ShaleStorage(config, {})
    config.extra_config = {"tiers": "memory:?size=1MiB"}
    with pytest.raises(ValueError, match="say in `model`"):
        ShaleStorage(config, {})
