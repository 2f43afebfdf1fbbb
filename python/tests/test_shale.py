"""The module against plain numpy, and against the project's golden vectors' definitions."""

import ctypes

import numpy as np
import pytest
import shale

rng = np.random.default_rng(3)
KEYS = rng.standard_normal((2, 100, 32), dtype=np.float32)
VALUES = rng.standard_normal((2, 100, 32), dtype=np.float32)
QUERIES = rng.standard_normal((6, 100, 32), dtype=np.float32)


def test_knorm_is_minus_the_norm():
    np.testing.assert_allclose(shale.score("knorm", KEYS), -np.linalg.norm(KEYS, axis=2), rtol=1e-5)


def test_keydiff_is_the_distance_from_the_mean_direction():
    unit = KEYS / np.linalg.norm(KEYS, axis=2, keepdims=True)
    anchor = unit.mean(axis=1, keepdims=True)
    cosine = (unit * anchor).sum(axis=2) / np.linalg.norm(anchor, axis=2)
    np.testing.assert_allclose(shale.score("keydiff", KEYS), -cosine, atol=1e-5)


def test_observed_attention_is_the_mean_of_attention_columns():
    logits = np.einsum("htd,hsd->hts", QUERIES, np.repeat(KEYS, 3, axis=0)) / np.sqrt(32)
    logits[:, np.triu(np.ones((100, 100), dtype=bool), 1)] = -np.inf
    weights = np.exp(logits - logits.max(axis=2, keepdims=True))
    weights /= weights.sum(axis=2, keepdims=True)
    columns = weights.sum(axis=1).reshape(2, 3, 100).mean(axis=1) / np.arange(100, 0, -1)
    np.testing.assert_allclose(shale.score("observed_attention", KEYS, queries=QUERIES), columns, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in shale.scorers() if name not in ("kvzip", "triattention")])
def test_every_scorer_scores(name):
    scores = shale.score(name, KEYS, VALUES, QUERIES)
    assert scores.shape == (2, 100) and scores.dtype == np.float32
    assert np.isfinite(scores).all()
    assert sorted(shale.ranking(scores[0])) == list(range(100))


def test_the_last_queries_are_enough_for_windows():
    last = np.ascontiguousarray(QUERIES[:, -16:])
    np.testing.assert_allclose(shale.score("snapkv", KEYS, queries=last, window=16),
                               shale.score("snapkv", KEYS, queries=QUERIES, window=16), rtol=1e-6)


def test_keep_counts_tokens():
    scores = shale.score("knorm", KEYS)[None]
    kept = shale.keep(scores, 0.25)
    assert kept.shape == (1, 2, 100) and (kept.sum(axis=2) == 25).all()
    assert shale.keep(scores, 0.25, budget="adakv").sum() == 50


@pytest.mark.parametrize("name", [name for name in shale.quantizers() if name != "cachegen"])
def test_codes_come_back(name):
    keys, values = KEYS[0].astype(np.float16), VALUES[0].astype(np.float16)
    codes = shale.encode(name, keys, values)
    back = shale.decode(name, codes, *keys.shape)
    for before, after in zip((keys, values), back):
        assert after.shape == before.shape and after.dtype == np.float16
        error = np.linalg.norm((after - before).astype(np.float32)) / np.linalg.norm(before.astype(np.float32))
        assert error == 0 if name == "none" else error < 0.75
    assert codes.nbytes <= keys.nbytes + values.nbytes


@pytest.mark.parametrize("call, part", [
    (lambda: shale.score("nothing", KEYS), "unknown scorer"),
    (lambda: shale.score("vk_ratio", KEYS), "reads values"),
    (lambda: shale.score("snapkv", KEYS), "reads queries"),
    (lambda: shale.score("kvzip", KEYS), "repeats the context"),
    (lambda: shale.score("snapkv", KEYS, queries=np.ascontiguousarray(QUERIES[:, -8:])), "last 64 tokens"),
    (lambda: shale.score("h2o", KEYS, queries=np.ascontiguousarray(QUERIES[:5])), "groups"),
    (lambda: shale.keep(KEYS, 0), "share"),
    (lambda: shale.encode("cachegen", KEYS[0].astype(np.float16), VALUES[0].astype(np.float16)), "needs tables"),
    (lambda: shale.decode("int8", np.zeros(3, np.uint8), 4, 32), "bytes"),
    (lambda: shale.encode("kivi4", np.zeros((4, 3), np.float16), np.zeros((4, 3), np.float16)), "multiples"),
])
def test_bad_input_is_named(call, part):
    with pytest.raises(ValueError, match=part):
        call()


def test_empty_contexts_are_defined():
    nothing = np.zeros((2, 0, 32), np.float32)
    assert shale.score("knorm", nothing).shape == (2, 0)
    assert shale.encode("int8", np.zeros((0, 32), np.float16), np.zeros((0, 32), np.float16)).size == 0


class OnAnotherDevice:
    """What a tensor on a GPU hands over: an address that only the GPU can read. Here it is the host's."""

    CUDA = 2

    class Managed(ctypes.Structure):
        _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                    ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                    ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                    ("byte_offset", ctypes.c_uint64), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]

    def __init__(self, array, device):
        self._array, self._device = array, device
        self._shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        self._managed = self.Managed(array.ctypes.data, device, 0, array.ndim, 2, 32, 1,
                                     ctypes.cast(self._shape, ctypes.c_void_p))

    def __dlpack_device__(self):
        return self._device, 0

    def __dlpack__(self, **_):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self._managed), b"dltensor", None)


def test_arrays_of_other_devices_are_refused():
    scores = rng.standard_normal(100, dtype=np.float32)
    assert np.array_equal(shale.ranking(OnAnotherDevice(scores, 1)), shale.ranking(scores))
    with pytest.raises(TypeError):
        shale.ranking(OnAnotherDevice(scores, OnAnotherDevice.CUDA))
