"""What the connector counts, in vLLM's log and at its /metrics."""

from dataclasses import dataclass

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorPromMetrics, KVConnectorStats

COUNTED = {
    "loads": "Loads from Shale's store that have ended",
    "loads_failed": "Loads of which blocks did not come and were computed",
    "loads_late": "Loads that were given up at load_timeout_s",
    "loads_overdue": "Loads that ended later than 1.1 times load_timeout_s",
    "load_seconds": "Seconds from the beginning of loads to their end",
    "blocks_loaded": "Blocks that loads brought",
    "blocks_lossy": "Blocks of these that were stored in fewer bits",
    "blocks_failed": "Blocks that loads did not bring",
    "saves": "Saves into Shale's store that have ended",
    "saves_failed": "Saves that found no room or no working tier",
    "saves_late": "Saves given up because no tier had taken their blocks for ten seconds",
    "saves_cancelled": "Saves given up because what they would have stored was computed on blocks that did not come",
    "blocks_shared": "Blocks of saves that were stored already",
}


@dataclass
class ShaleStats(KVConnectorStats):
    """Counts since the last time they were taken."""

    def reset(self, **_):
        self.data.clear()

    def aggregate(self, other, **_):
        return ShaleStats({name: self.data.get(name, 0) + other.data.get(name, 0) for name in self.data | other.data})

    def reduce(self, **_):
        return {f"shale {name.replace('_', ' ')}": round(value, 3) for name, value in self.data.items()}

    def is_empty(self, **_):
        return not any(self.data.values())


class ShaleMetrics(KVConnectorPromMetrics):
    def __init__(self, vllm_config, metric_types, labelnames, per_engine_labelvalues):
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._counters = {}
        for name, text in COUNTED.items():
            counter = self._counter_cls(name=f"vllm:shale_{name}", documentation=text + ".", labelnames=labelnames)
            self._counters[name] = {engine: counter.labels(*labels)
                                    for engine, labels in per_engine_labelvalues.items()}

    def observe(self, transfer_stats_data, engine_idx=0, **_):
        for name, value in transfer_stats_data.items():
            if name in self._counters and value:
                self._counters[name][engine_idx].inc(value)
