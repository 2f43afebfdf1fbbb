"""How soon the first token comes, and what saving costs: measure.py MODEL ROUNDS. One engine with the connector and one
without; prompts of 1,000, 2,000 and 4,000 tokens, interleaved, medians. Prints a table."""

import os
import pathlib
import statistics
import sys
import tempfile
import time

os.environ.setdefault("SHALE_VLLM_MODEL", sys.argv[1])
from test_vllm import Engine, blobs, blocks_of, prompts_of, settle

LENGTHS = (1000, 2000, 4000)


def read_s(paths):
    begun = time.perf_counter()
    for path in paths:
        path.read_bytes()
    return time.perf_counter() - begun


def main():
    rounds = int(sys.argv[2])
    folder = pathlib.Path(tempfile.mkdtemp()) / "store"
    folder.mkdir(mode=0o700)
    with Engine(folder) as engine, Engine(folder.with_name("plain"), offloading="none") as plain:
        print("tokens  computed  computed, saving  saving's share  own cache  store  store - own  raw read")
        for tokens in LENGTHS:
            rows = []
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
                             read_s(new)))
                print(tokens, turn, *(f"{value * 1e3:.1f}" for value in rows[-1]), file=sys.stderr, flush=True)
            computed, saving, own, stored, raw = (statistics.median(column) for column in zip(*rows))
            share = statistics.median(row[1] / row[0] - 1 for row in rows)
            extra = statistics.median(row[3] - row[2] for row in rows)
            print(f"{tokens:6} {computed * 1e3:7.0f} ms {saving * 1e3:14.0f} ms {share:14.1%} {own * 1e3:7.0f} ms "
                  f"{stored * 1e3:5.0f} ms {extra * 1e3:8.1f} ms {raw * 1e3:6.1f} ms", flush=True)


if __name__ == "__main__":
    main()
