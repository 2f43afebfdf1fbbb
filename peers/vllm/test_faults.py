"""The connector in a vLLM while everything that it stands on fails: its disk, Redis, S3, the network, the engine itself.

    ./shale peers s3 -- env SHALE_VLLM_FAULTS=500 ./shale test --peers vllm -k faults

Without S3 its faults are left out. No text may be another than vLLM's own, whatever was found, and no prompt may go
unanswered but those that a killed engine had, which are asked again.
"""

import collections
import contextlib
import os
import random
import signal
import socket
import subprocess
import threading
import time
import urllib.parse

from test_vllm import BLOCK, Engine, blobs, blocks_of, prompts_of

FAULTS = int(os.environ.get("SHALE_VLLM_FAULTS", "40"))
KILLS = max(1, FAULTS // 100)  # of the engine, which takes long to be back
S3 = os.environ.get("SHALE_S3_URL")
DISK_MIB = 48
LOAD_TIMEOUT_S = 2
ANSWER = 8  # tokens


class Proxy:
    """A TCP proxy whose connections err as `fault` says: "gone", "hang", "slow", or bytes to answer with."""

    def __init__(self, port):
        self.to, self.fault, self.listener = port, None, socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            with contextlib.suppress(OSError):
                server = socket.create_connection(("127.0.0.1", self.to))
                for source, sink in ((client, server), (server, client)):
                    threading.Thread(target=self.pass_on, args=(source, sink, source is client), daemon=True).start()
                continue
            client.close()

    def pass_on(self, source, sink, from_client):
        with contextlib.suppress(OSError), source, sink:
            while data := source.recv(1 << 16):
                while self.fault == "hang":
                    time.sleep(0.01)
                if self.fault == "slow":
                    time.sleep(len(data) / 1e6)
                if self.fault == "gone":
                    break
                if isinstance(self.fault, bytes) and from_client:
                    source.sendall(self.fault)
                    break
                sink.sendall(data)
            for each in (source, sink):
                each.shutdown(socket.SHUT_RDWR)


class Redis:
    def __init__(self, memory="24mb"):
        self.memory = memory
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self.start()

    def start(self):
        self.process = subprocess.Popen(["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "",
                                         "--maxmemory", self.memory, "--maxmemory-policy", "allkeys-lru"],
                                        stdout=subprocess.DEVNULL)
        while self.ask("ping") != "PONG":
            time.sleep(0.05)

    def ask(self, *command):
        return subprocess.run(["redis-cli", "-p", str(self.port), *command], text=True, capture_output=True).stdout.strip()


class World:
    """What an engine stands on, and the ways in which it fails: each a context that lasts for some prompts."""

    def __init__(self, folder, draw):
        self.draw, self.folder = draw, folder
        self.redis = Redis()
        self.redis_proxy = Proxy(self.redis.port)
        self.tiers = [f"file://{folder}?size={DISK_MIB // 3}MiB",
                      f"redis://127.0.0.1:{self.redis_proxy.port}?timeout=300ms&deadline=600ms"]
        self.kinds = [self.disk_damaged, self.disk_removed, self.disk_full, self.redis_killed, self.redis_stopped, self.redis_damaged,
                      self.redis_gone, self.redis_slow, self.redis_loading]
        if S3:
            self.s3_proxy = Proxy(urllib.parse.urlsplit(urllib.parse.parse_qs(S3.split("?")[1])["endpoint"][0]).port)
            self.tiers.append(S3.replace(f":{self.s3_proxy.to}", f":{self.s3_proxy.port}") + "&timeout=300ms")
            self.kinds += [self.s3_unavailable, self.s3_hangs, self.s3_slow, self.s3_gone]

    def pick(self):
        return self.draw.choice(blobs(self.folder) or [None])

    @contextlib.contextmanager
    def disk_damaged(self):
        with contextlib.suppress(OSError, TypeError, ValueError), open(self.pick(), "r+b") as blob:
            blob.seek(self.draw.randrange(os.fstat(blob.fileno()).st_size))
            blob.write(bytes([self.draw.randrange(256)]))
        yield

    @contextlib.contextmanager
    def disk_removed(self):
        with contextlib.suppress(OSError, AttributeError):
            self.pick().unlink()
        yield

    @contextlib.contextmanager
    def disk_full(self):
        ballast = self.folder / "ballast"
        with contextlib.suppress(OSError), open(ballast, "wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))
        yield
        ballast.unlink()

    @contextlib.contextmanager
    def redis_killed(self):
        self.redis.process.kill()
        self.redis.process.wait()
        yield
        self.redis.start()

    @contextlib.contextmanager
    def redis_stopped(self):
        self.redis.process.send_signal(signal.SIGSTOP)
        yield
        self.redis.process.send_signal(signal.SIGCONT)

    @contextlib.contextmanager
    def redis_damaged(self):
        key = self.redis.ask("randomkey")
        if self.redis.ask("type", key) == "string":
            self.redis.ask("setrange", key, str(self.draw.randrange(1 << 14)), "damage")
        yield

    @contextlib.contextmanager
    def by(self, proxy, fault):
        proxy.fault = fault
        yield
        proxy.fault = None

    def redis_gone(self):
        return self.by(self.redis_proxy, "gone")

    def redis_slow(self):
        return self.by(self.redis_proxy, "slow")

    def redis_loading(self):
        return self.by(self.redis_proxy, b"-LOADING Redis is loading the dataset in memory\r\n")

    def s3_unavailable(self):
        return self.by(self.s3_proxy, b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    def s3_hangs(self):
        return self.by(self.s3_proxy, "hang")

    def s3_slow(self):
        return self.by(self.s3_proxy, "slow")

    def s3_gone(self):
        return self.by(self.s3_proxy, "gone")

    def close(self):
        self.redis.process.kill()


def reference(prompts, folder):
    """What vLLM alone answers to each prompt of two blocks, and how long it takes to compute one. What it computes
    depends on how much it computes at a time: all, what follows the first block, what follows both, the second of
    which was computed with the first, or after it."""
    texts, seconds = [], []
    with Engine(folder, offloading="none") as engine:
        for number, ids in enumerate(prompts):
            begins = ids[:BLOCK] + prompts[number - 1][BLOCK:]
            whole, both, _, after, apart = engine.ask(["reset", ids, ids, "reset", begins, ids, ids], max_tokens=ANSWER)
            assert [answer["cached"] for answer in (whole, both, after, apart)] == [0, 2 * BLOCK, BLOCK, 2 * BLOCK]
            texts.append({answer["text"] for answer in (whole, both, after, apart)})
            seconds.append(whole["ttft_s"])
    return texts, max(seconds)


@contextlib.contextmanager
def file_system(folder):
    """So small that it can be filled."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m,mode=0700", "shale-test", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def test_faults_cost_no_answer_and_no_wrong_text(tmp_path):
    draw = random.Random(int(os.environ.get("SHALE_VLLM_SEED", "1")))
    prompts = prompts_of(8, tokens=2 * BLOCK + 44)
    texts, computed_s = reference(prompts, tmp_path / "plain")
    folder = tmp_path / "store"
    folder.mkdir(mode=0o700)
    counts, metrics = collections.Counter(), collections.Counter()
    answers = found = again = longest_s = 0
    wrong = []
    with file_system(folder), contextlib.closing(World(folder, draw)) as world, contextlib.ExitStack() as stack:
        def engine():
            return stack.enter_context(Engine(folder, offloading={"tiers": world.tiers, "load_timeout_s": LOAD_TIMEOUT_S}))

        def check(fault, number, answer):
            nonlocal answers, found, longest_s
            answers += 1
            found += answer["cached"] > 0
            if answer["text"] not in texts[number]:
                wrong.append((fault, number, answer, texts[number]))
                print("wrong:", *wrong[-1], flush=True)
            longest_s = max(longest_s, answer["ttft_s"])

        running = engine()
        kills = set(draw.sample(range(FAULTS), KILLS))
        for nth in range(FAULTS):
            if nth % 25 == 0:
                print(f"{nth} faults: {answers} answers, {len(wrong)} wrong", flush=True)
            asked = draw.sample(range(len(prompts)), 2)
            lines = ["reset", *(prompts[number] for number in asked)]
            if nth in kills:
                counts["engine_killed"] += 1
                metrics.update(running.ask(["metrics"])[0])
                running.send(lines, max_tokens=ANSWER)
                time.sleep(draw.uniform(0, 2 * computed_s))
                running.kill()
                running = engine()
                again += len(asked)
                fault = contextlib.nullcontext
            else:
                fault = draw.choice(world.kinds)
                counts[fault.__name__] += 1
            with fault():
                for number, answer in zip(asked, running.ask(lines, max_tokens=ANSWER)):
                    check(fault.__name__, number, answer)
        metrics.update(running.ask(["metrics"])[0])
    print(f"{sum(counts.values())} faults ({', '.join(f'{kind} {count}' for kind, count in sorted(counts.items()))}): "
          f"{answers} answers, {len(wrong)} wrong, {found} began with what the store has, {again} asked again of a killed engine; "
          f"first tokens after {longest_s:.2f} s at most, where computing takes {computed_s:.2f} and loads are given up after "
          f"{LOAD_TIMEOUT_S}; {dict(sorted(metrics.items()))}")
    assert answers == 2 * FAULTS and not wrong
    assert found > 0 and metrics["blocks_loaded"] > 0
    assert metrics["loads_overdue"] == 0, "a load is given up within a tenth of its deadline"
    if FAULTS >= 200:
        assert metrics["blocks_failed"] > 0 and metrics["saves_failed"] > 0


def test_loads_from_a_silent_tier_are_given_up_in_time(tmp_path):
    """The tier's own time-outs are far longer."""
    prompts = prompts_of(3, tokens=2 * BLOCK + 44)
    redis = Redis("200mb")
    proxy = Proxy(redis.port)
    tiers = f"redis://127.0.0.1:{proxy.port}?timeout=60s&deadline=60s"
    try:
        with Engine(tmp_path / "store", tiers=tiers, load_timeout_s=LOAD_TIMEOUT_S) as engine:
            computed = engine.ask(prompts, max_tokens=ANSWER)
            until = time.monotonic() + 60
            while True:
                *found, before = engine.ask(["reset", *prompts, "metrics"], max_tokens=ANSWER)
                if all(answer["cached"] == blocks_of(ids) for answer, ids in zip(found, prompts)):
                    break
                assert time.monotonic() < until, "what was saved is found"
            proxy.fault = "hang"
            *late, after = engine.ask(["reset", *prompts, "metrics"], max_tokens=ANSWER)
            proxy.fault = None
    finally:
        redis.process.kill()
    seconds = (after["load_seconds"] - before["load_seconds"]) / len(prompts)
    print(f"loads of a silent tier are given up after {seconds:.3f} s, where {LOAD_TIMEOUT_S} are allowed")
    assert all(answer["text"] in (a["text"], b["text"]) for answer, a, b in zip(late, computed, found))
    assert after["loads_late"] - before["loads_late"] == len(prompts)
    assert after["loads_overdue"] == 0 and seconds <= 1.1 * LOAD_TIMEOUT_S
