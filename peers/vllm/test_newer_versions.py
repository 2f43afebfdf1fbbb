"""Newer versions of vLLM may pass more than the one that was tested. No engine: what the methods work on is mocked."""

import inspect
from unittest.mock import MagicMock

import pytest
from shale import vllm, vllm_tier
from shale.connector import Plan, Report
from shale.vllm import KVConnectorRole, ShaleConnector
from shale.vllm_metrics import ShaleMetrics, ShaleStats
from shale.vllm_tier import ShaleOffloadingSpec, ShaleTier

TIERS = "memory:?size=1MiB"


def connector(monkeypatch):
    for name in ("Geometry", "_open", "_bits", "_offsets", "PagedKv", "Worker"):
        monkeypatch.setattr(vllm, name, MagicMock())
    vllm.Geometry.return_value = MagicMock(hash_name="sha256", layers=["layer"])
    config = MagicMock()
    config.kv_transfer_config.kv_connector_extra_config = {"tiers": TIERS}
    made = ShaleConnector(config, KVConnectorRole.SCHEDULER, MagicMock(), newer=None)
    made._worker = made._scheduler = made._pool = MagicMock()
    made._worker.report.return_value = Report(garbage=[1])
    made._scheduler.plan.return_value = Plan()
    made._layer_numbers = {}
    return made


def tier(monkeypatch):
    monkeypatch.setattr(vllm_tier, "_name_space", MagicMock())
    monkeypatch.setattr(vllm_tier, "ByteStore", MagicMock())
    vllm_tier.ByteStore.return_value.look_up.return_value = True, False
    return ShaleTier(MagicMock(), memoryview(bytes(64)).cast("b", (4, 16)), "ShaleTier", tiers=TIERS, newer=None)


def spec(monkeypatch):
    monkeypatch.setattr(vllm_tier, "current_platform", MagicMock())
    made = object.__new__(ShaleOffloadingSpec)
    made._worker = MagicMock()
    return made


def worker(_):
    return vllm_tier._CopyingWorker(MagicMock(), 1, MagicMock())


MAKERS = {ShaleConnector: connector, ShaleTier: tier, ShaleOffloadingSpec: spec, vllm_tier._CopyingWorker: worker,
          vllm._Report: lambda _: vllm._Report(), ShaleStats: lambda _: ShaleStats({}),
          ShaleMetrics: lambda _: ShaleMetrics(*[MagicMock() for _ in range(4)])}


def overridden(kind):
    """What vLLM calls: methods that one of its classes has, too."""
    theirs = [base for base in kind.__mro__ if base.__module__.startswith("vllm.")]
    return [name for name in vars(kind) if not name.startswith("_") and inspect.isroutine(getattr(kind, name))
            and any(hasattr(base, name) for base in theirs)]


@pytest.mark.parametrize("kind, name", [(kind, name) for kind in MAKERS for name in overridden(kind)])
def test_unknown_keywords_are_tolerated(monkeypatch, kind, name):
    method = getattr(MAKERS[kind](monkeypatch), name)
    given = [MagicMock() for each in inspect.signature(method).parameters.values()
             if each.kind == each.POSITIONAL_OR_KEYWORD and each.default is each.empty]
    method(*given, newer=None)


def test_those_of_all_classes_are_found():
    assert {"get_num_new_matched_tokens", "build_prom_metrics", "shutdown"} <= set(overridden(ShaleConnector))
    assert all(overridden(kind) for kind in MAKERS)
