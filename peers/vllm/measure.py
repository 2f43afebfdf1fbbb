"""How soon the first token comes, and what saving costs: measure.py MODEL ROUNDS. One engine with the connector and one
without; prompts of 1,000, 2,000 and 4,000 tokens, interleaved, medians. Prints a table. Its last column is what a hit in
the store costs beyond one in vLLM's own cache, over what it cannot do without: reading the files and unpacking them."""

import functools
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time
import types

os.environ.setdefault("SHALE_VLLM_MODEL", sys.argv[1])
import torch
from shale.connector import LoadJob
from shale.connector_options import Options
from shale.loader import Progress
from shale.paged import PagedKv
from shale.vllm import Geometry, _bits, _offsets
from test_vllm import BLOCK, MODEL, Engine, blobs, blocks_of, prompts_of, settle
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackendImpl, _get_attn_isa

LENGTHS = (1000, 2000, 4000)


def read_s(paths):
    begun = time.perf_counter()
    for path in paths:
        path.read_bytes()
    return time.perf_counter() - begun


class Unpacking:
    """The connector's loads from a tier in memory, into blocks as vLLM has them: checking and unpacking alone."""

    def __init__(self, blocks):
        model = json.loads((pathlib.Path(MODEL) / "config.json").read_text())
        shape = types.SimpleNamespace(
            layers=range(model["num_hidden_layers"]), heads=model["num_key_value_heads"], dim=model["head_dim"],
            block_tokens=BLOCK, dtype=getattr(torch, model["dtype"]), name_space="measure")
        attention = types.SimpleNamespace(isa=_get_attn_isa(shape.dtype, BLOCK, shape.dim), attn_type="decoder",
                                          kv_cache_dtype="auto", _k_scale_float=1.0, _v_scale_float=1.0)
        attention.impl = types.SimpleNamespace(
            do_kv_cache_update=functools.partial(CPUAttentionBackendImpl.do_kv_cache_update, attention))
        cache = torch.randn(blocks, shape.heads, BLOCK, 2 * shape.dim, dtype=shape.dtype)
        self.kv = PagedKv([_bits(cache.clone()) for _ in shape.layers], _offsets(cache, attention, shape))
        options = Options.parse({"tiers": "memory:?size=1GiB"})
        self.store = Geometry.open(shape, options, options.tiers)
        keys = tuple(number.to_bytes(32, "big") for number in range(blocks))
        self.job = LoadJob("", keys, 0, tuple(range(blocks)), False)
        run = self.kv.run(self.job.blocks)
        for layer in shape.layers:
            run.fill(layer)
        self.store.save(keys, run.view).wait()

    def seconds(self):
        begun = time.perf_counter()
        load = Progress(self.store, self.job, self.kv, 60, {})
        load.wait()
        assert not load.failed
        return time.perf_counter() - begun


def main():
    rounds = int(sys.argv[2])
    folder = pathlib.Path(tempfile.mkdtemp()) / "store"
    folder.mkdir(mode=0o700)
    with Engine(folder) as engine, Engine(folder.with_name("plain"), offloading="none") as plain:
        print("tokens  computed  computed, saving  saving's share  own cache  store  store - own  raw read  unpacking  "
              "(store - own) / (raw read + unpacking)")
        for tokens in LENGTHS:
            rows = []
            unpacking = Unpacking(blocks=(tokens - 1) // BLOCK)
            for turn in range(rounds):
                (ids,) = prompts_of(1, seed=tokens + turn, tokens=tokens)
                order = (engine, plain) if turn % 2 else (plain, engine)
                before = set(blobs(folder))
                cold = {which: which.ask([ids], max_tokens=1)[0] for which in order}
                settle(folder)
                new = set(blobs(folder)) - before
                own = engine.ask([ids], max_tokens=1)[0]
                stored = engine.ask(["reset", ids], max_tokens=1)[0]
                assert own["cached"] == stored["cached"] == blocks_of(ids), (own, stored)
                assert cold[plain]["cached"] == cold[engine]["cached"] == 0
                rows.append((cold[plain]["ttft_s"], cold[engine]["ttft_s"], own["ttft_s"], stored["ttft_s"],
                             read_s(new), unpacking.seconds()))
                print(tokens, turn, *(f"{value * 1e3:.1f}" for value in rows[-1]), file=sys.stderr, flush=True)
            computed, saving, own, stored, raw, unpacked = (statistics.median(column) for column in zip(*rows))
            share = statistics.median(row[1] / row[0] - 1 for row in rows)
            extra = statistics.median(row[3] - row[2] for row in rows)
            print(f"{tokens:6} {computed * 1e3:7.0f} ms {saving * 1e3:14.0f} ms {share:14.1%} {own * 1e3:7.0f} ms "
                  f"{stored * 1e3:5.0f} ms {extra * 1e3:8.1f} ms {raw * 1e3:6.1f} ms {unpacked * 1e3:7.1f} ms "
                  f"{extra / (raw + unpacked):10.2f}", flush=True)


if __name__ == "__main__":
    main()
