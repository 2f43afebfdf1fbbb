"""What a fleet computes, how soon it answers, and what `shale simulate fleet` says of the same: --live.

Random ones of the documents are asked about at random times: by KV events, round robin, and one engine with as much
memory as all of them. Answers have one token, so the time of an answer, from when it was due, is that of its first
token."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import random
import statistics
import subprocess
import tempfile
import time

from fleet import ask, by_events, document, post, prompt, redis, round_robin, router, servers

COUNT = 3  # servers of the fleet
CALIBRATION = 1000  # documents from here on are asked about to measure


def add_options(group):
    group.add_argument("--share", nargs="?", const="folder", choices=("folder", "redis"),
                       help="what all servers share: a folder (default), or a Redis server")
    group.add_argument("--requests", type=int, default=144)
    group.add_argument("--rate", type=float, default=1, help="requests a second, at random times")
    group.add_argument("--pool", type=int, default=128, help="MiB, of each server")
    group.add_argument("--seed", type=int, default=1, help="of times and documents")
    group.add_argument("--out", type=pathlib.Path, help="keep the trace and the measured hardware in this folder")


def arguments(options, shared, engines):
    tiers = ["memory://?size=1MiB"] + ([shared] if shared else [])
    return ["--pool", f"{options.pool * COUNT // engines}MiB", "--tiers", ",".join(tiers)]


@contextlib.contextmanager
def store(options):
    """A tier's URL with nothing in it, or none."""
    if options.share == "redis":
        with redis() as url:
            yield url
    elif options.share:
        with tempfile.TemporaryDirectory(prefix="shale-shared-") as folder:
            yield f"dir://{folder}/shared"
    else:
        yield None


def measured(options):
    """The hardware of one engine (docs/formats/hardware.md), by lone requests to servers with nothing else to do."""
    with store(options) as shared, servers(arguments(options, shared, COUNT), 2) as (first, second):
        # Memory that a process touches for the first time comes slowly, which no server with requests behind it sees.
        tokens = 0
        for number in range(CALIBRATION, 2 * CALIBRATION):
            for server in (first, second) if shared else (first,):
                usage, _ = ask(server.url, server.model, document(number, options.words), "What is this?")
            tokens += usage["prompt_tokens"]
            kept, free = (first.metric("shale_pool_bytes", state=state) for state in ("kept", "free"))
            if free < kept / 12:
                break
        bytes_per_token = kept / tokens

        def medians(server, words, numbers, question):
            """Seconds, tokens of the prompt, and how many of them were computed."""
            answers = [ask(server.url, server.model, document(number, words), question) for number in numbers]
            usages = [usage for usage, _ in answers]
            return (statistics.median(seconds for _, seconds in answers),
                    statistics.median(usage["prompt_tokens"] for usage in usages),
                    statistics.median(usage["prompt_tokens_details"]["computed_tokens"] for usage in usages))

        rows = []
        for nth, words in enumerate((options.words // 2, options.words)):
            numbers = range(CALIBRATION * (nth + 2), CALIBRATION * (nth + 2) + 11)
            computed_s, tokens, _ = medians(first, words, numbers, "What of bed 1?")
            found_s, _, rest = medians(first, words, numbers, "What of bed 22?")
            time.sleep(3)  # until it is stored
            loaded_s, _, behind = medians(second, words, numbers, "What of bed 333?") if shared else (None, None, rest)
            rows.append((tokens, computed_s, found_s, loaded_s, rest, behind))
    (n1, c1, f1, l1, r1, b1), (n2, c2, f2, l2, r2, b2) = rows
    # a + b n / 2 seconds a token: what is computed takes as much longer than what is found but for the rest behind it.
    m1, m2 = n1 - r1, n2 - r2
    b = max(0, ((c2 - f2) / m2 - (c1 - f1) / m1) / (m2 - m1) * 2)
    a = (c2 - f2) / m2 - b * m2 / 2
    tiers = [{"name": "memory", "bytes": options.pool << 20, "latency_s": 0, "read_bytes_per_s": 1e15}]
    if options.share:
        speed = (n2 - n1) * bytes_per_token / max((l2 - f2) - (l1 - f1), 1e-4)
        tiers.append({"name": "remote", "latency_s": max(0, l2 - f2 - n2 * bytes_per_token / speed),
                      "read_bytes_per_s": speed})
    print(f"one engine: {n1:.0f} and {n2:.0f} tokens computed in {c1 * 1e3:.0f} and {c2 * 1e3:.0f} ms, found in {f1 * 1e3:.0f} and "
          f"{f2 * 1e3:.0f} ms" + (f", loaded in {l1 * 1e3:.0f} and {l2 * 1e3:.0f} ms" if options.share else "") +
          f", the last {b1:.0f} and {b2:.0f} of them computed", flush=True)
    hardware = {"kv_bytes_per_token": bytes_per_token, "prefill_s_per_token": a, "prefill_s_per_pair": b, "tiers": tiers}
    # To a simulated engine what is found ends with a block, as what is loaded does.
    return hardware, max(0, (f1 + f2 - a * (b1 + b2)) / 2)


def simulated(options, hardware, trace, engines, by):
    """What `shale simulate fleet` says, a row."""
    command = [os.environ["SHALE_PROGRAM"], "simulate", "fleet", "--trace", trace, "--timestamps", "s", "--block-tokens", "16",
               "--engines", str(engines), "--router", by, "--emulate", hardware, "--planner", "lru", "--servers", "1",
               "--scheduling", "srpt",
               "--memory-size", f"{options.pool * COUNT // engines}MiB", "--share", "on" if options.share else "off",
               "--json"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SHALE_")}
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, env=environment).stdout)


def asked(options, url, model, texts):
    """Which documents were asked about, and of each answer when it was due, its usage and the seconds since."""
    draw = random.Random(options.seed)
    order = [draw.randrange(len(texts)) for _ in range(options.requests)]
    due, began = 0, time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(len(order)) as clients:
        answers = []
        for nth, number in enumerate(order):
            due += draw.expovariate(options.rate)
            time.sleep(max(0, began + due - time.monotonic()))
            answers.append((due, clients.submit(ask, url, model, texts[number], f"What of bed {nth}?", began + due)))
        return order, [(due, *answer.result()) for due, answer in answers]


def write_trace(path, url, model, texts, order, answers):
    with path.open("w") as lines:
        for nth, (number, (due, _, _)) in enumerate(zip(order, answers)):
            body = {"model": model, "prompt": prompt(texts[number], f"What of bed {nth}?")}
            (rendered,) = post(url + "/v1/completions/render", body)
            lines.write(json.dumps({"timestamp": due, "token_ids": rendered["token_ids"]}) + "\n")


def run(options):
    texts = [document(n, options.words) for n in range(options.documents)]
    with contextlib.ExitStack() as stack:
        folder = options.out or pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shale-live-")))
        folder.mkdir(parents=True, exist_ok=True)
        hardware, trace = folder / "hardware.json", folder / "trace.jsonl"
        speeds, found_s = measured(options)
        hardware.write_text(json.dumps(speeds, indent=1))
        for name, by, command, engines in (("kv_aware", "overlap", by_events, COUNT),
                                           ("round_robin", "round_robin", round_robin, COUNT),
                                           ("one engine", "round_robin", None, 1)):
            with store(options) as shared, servers(arguments(options, shared, engines), engines) as fleet, \
                    contextlib.ExitStack() as routed:
                url = routed.enter_context(router(command(fleet))) if command else fleet[0].url
                order, answers = asked(options, url, fleet[0].model, texts)
                if command is by_events:  # the first: all are asked the same
                    write_trace(trace, fleet[0].url, fleet[0].model, texts, order, answers)
                computed = sum(server.metric("shale_engine_prefill_tokens_total") for server in fleet)
                served = [int(server.requests()) for server in fleet]
            report(name, answers, computed, served, simulated(options, hardware, trace, engines, by), found_s)
        return True


def report(name, answers, computed, served, row, found_s):
    """`found_s`: what a request takes beside its tokens, which is no time to a simulated engine."""
    prompts = sum(usage["prompt_tokens"] for _, usage, _ in answers)
    p50, p90 = (statistics.quantiles([seconds for _, _, seconds in answers], n=10)[n] for n in (4, 8))
    found = {}
    for _, usage, _ in answers:
        for place, tokens in usage["prompt_tokens_details"]["cached_from"].items():
            found[place] = found.get(place, 0) + tokens
    print(f"{name}: {computed:.0f} of {prompts} prompt tokens computed ({computed / prompts:.1%}), found "
          f"{ {place: f'{tokens / prompts:.1%}' for place, tokens in found.items() if tokens} }, "
          f"p50 {p50 * 1e3:.0f} ms, p90 {p90 * 1e3:.0f} ms, requests {served}")
    tiers = {tier["tier"]: f"{tier['tokens_loaded'] / row['tokens']:.1%}" for tier in row["tiers"]}
    print(f"  simulated: {row['tokens_computed'] / row['tokens']:.1%} computed, found {tiers}, "
          f"p50 {(row['ttft_p50_seconds'] + found_s) * 1e3:.0f} ms, p90 {(row['ttft_p90_seconds'] + found_s) * 1e3:.0f} ms",
          flush=True)
