"""Three `shale serve` behind routers of others: who gets what, and what the fleet computes.

    ./shale peers router                      # vllm-router by KV events, and smg: 48 documents, who got them
    ./shale peers router --live [--share]     # prompt tokens that the fleet computes: by KV events, round robin, and one
                                              # engine with three times the memory

Ends with 1 where vllm-router did not send every request to the server that holds its prefix, or a router failed.
"""

import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

ROCKS = "shale slate marble granite basalt chalk flint gneiss schist dolomite gypsum quartzite".split()


def document(number, words):
    """Text that begins like no other document's."""
    lines = [f"Report {number} on {ROCKS[number % len(ROCKS)]}."]
    for n in range(words // 10):
        a, b = ROCKS[(number * 7 + n * 3) % len(ROCKS)], ROCKS[(number * 5 + n) % len(ROCKS)]
        lines.append(f"In bed {n * (number + 3) % 97} {a} lies on {b}.")
    return " ".join(lines)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def post(url, body, timeout=300):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=timeout) as reply:
        return json.load(reply)


def ask(url, model, text, question):
    """The answer's usage, and the seconds that it took."""
    began = time.monotonic()
    body = {"model": model, "prompt": f"{text}\nQuestion: {question}\nAnswer:", "temperature": 0, "max_tokens": 1}
    usage = post(url + "/v1/completions", body)["usage"]
    return usage, time.monotonic() - began


class Server:
    def __init__(self, name, folder, arguments):
        self.name = name
        home = folder / name
        home.mkdir()
        environment = {key: value for key, value in os.environ.items() if not key.startswith("SHALE_")}
        environment |= {"HOME": str(home), "SHALE_MODEL_DIR": os.environ.get("SHALE_MODEL_DIR", "")}
        command = [os.environ["SHALE_PROGRAM"], "serve", "--port", "0", "--json", "--profile", "never", "--threads", "1",
                   "--kv-events", "tcp://127.0.0.1:*", "--kv-events-replay", "tcp://127.0.0.1:*", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=open(home / "log", "w"), text=True,
                                        env=environment)
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{' '.join(command)} ended:\n{(home / 'log').read_text()}")
        said = json.loads(line)
        self.url, self.model = said["url"], said["model"]
        self.events, self.replay = said["kv_events"], said["kv_events_replay"]

    def metric(self, name):
        text = urllib.request.urlopen(self.url + "/metrics").read().decode()
        return sum(float(value) for value in re.findall(rf"^{re.escape(name)}(?:\{{[^}}]*\}})? (\S+)$", text, re.M))

    def requests(self):
        return self.metric("vllm:request_success_total")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=60)


@contextlib.contextmanager
def servers(arguments, count=3):
    with tempfile.TemporaryDirectory(prefix="shale-fleet-") as folder, contextlib.ExitStack() as stack:
        started = []
        for n in range(count):
            place = pathlib.Path(folder)
            started.append(Server(f"server{n + 1}", place, [each.format(folder=place) for each in arguments]))
            stack.callback(started[-1].stop)
        yield started


@contextlib.contextmanager
def router(command):
    """A router's URL, once it answers."""
    port = free_port()
    log = tempfile.NamedTemporaryFile("w+", prefix="shale-router-", suffix=".log")
    command = [sys.executable, "-m", *command, "--host", "127.0.0.1", "--port", str(port), "--prometheus-port",
               str(free_port())]
    process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            if process.poll() is not None:
                break
            with contextlib.suppress(OSError):
                urllib.request.urlopen(url + "/health", timeout=5).read()
                break
            time.sleep(0.1)
        else:
            process.terminate()
        if process.poll() is not None:
            log.seek(0)
            sys.exit(f"{' '.join(command)} did not start:\n{log.read()[-3000:]}")
        time.sleep(2)  # a subscription takes a moment
        yield url
    finally:
        process.terminate()
        process.wait(timeout=30)


def by_events(fleet):
    command = ["vllm_router.launch_router", "--policy", "kv_aware", "--kv-event-block-size", "16", "--kv-event-model", fleet[0].model,
               "--worker-urls", *[server.url for server in fleet]]
    for server in fleet:
        command += ["--kv-event-source", f"{server.url}={server.events}",
                    "--kv-event-replay-source", f"{server.url}={server.replay}"]
    return command


def round_robin(fleet):
    return ["vllm_router.launch_router", "--policy", "round_robin", "--worker-urls", *[server.url for server in fleet]]


def smg(fleet):
    return ["smg.cli", "launch", "--policy", "cache_aware", "--backend", "sglang", "--model-path", "smollm2-135m",
            "--worker-urls", *[server.url for server in fleet]]


def who_answered(fleet, before):
    for server, count in zip(fleet, before):
        if server.requests() > count:
            return server
    return None


def conforms(options):
    """Whether each of the documents reached the server that had computed it."""
    texts = [document(n, options.words) for n in range(options.documents)]
    holder, right, got = {}, 0, {}
    with servers(["--pool", "512MiB", "--tiers", "memory://?size=256MiB"]) as fleet, router(by_events(fleet)) as url:
        for n, text in enumerate(texts):
            holder[n] = fleet[(n * 5 + n // 3) % 3]  # no order that a router could follow by turns
            ask(holder[n].url, fleet[0].model, text, "What is this?")
        time.sleep(1)
        for n, text in enumerate(texts):
            before = [server.requests() for server in fleet]
            usage, _ = ask(url, fleet[0].model, text, "On what does it lie?")
            server = who_answered(fleet, before)
            got.setdefault((holder[n].name, server.name if server else "nobody"), []).append(
                usage["prompt_tokens_details"]["cached_tokens"] / usage["prompt_tokens"])
            right += server is holder[n]
    for (held, answered), shares in sorted(got.items()):
        print(f"vllm-router: {len(shares):3} requests whose prefix {held} holds went to {answered}, "
              f"{statistics.mean(shares):.0%} of their prompts cached")
    print(f"vllm-router: {right} of {len(texts)} requests reached the server that holds their prefix")
    return right == len(texts)


def sticks(options):
    """How many repeated requests smg sent to the server that had the document before."""
    texts = [document(n, options.words) for n in range(options.documents)]
    home, again, asked = {}, 0, 0
    with servers(["--pool", "512MiB", "--tiers", "memory://?size=256MiB"]) as fleet, router(smg(fleet)) as url:
        for turn in range(3):
            for n, text in enumerate(texts):
                before = [server.requests() for server in fleet]
                body = {"model": "smollm2-135m", "temperature": 0, "max_tokens": 1,
                        "messages": [{"role": "user", "content": f"{text} Question {turn}?"}]}
                post(url + "/v1/chat/completions", body)
                server = who_answered(fleet, before)
                if turn > 0:
                    asked += 1
                    again += server is home[n]
                home.setdefault(n, server)
    spread = [sum(server is each for each in home.values()) for server in fleet]
    print(f"smg: {again} of {asked} repeated requests went to the server that had the document; "
          f"documents by server: {spread}")
    return all(home.values())


def live(options):
    """Prompt tokens that the fleet computes, and how long answers of one token take."""
    tiers = "memory://?size=1MiB" + (",dir://{folder}/shared" if options.share else "")
    texts = [document(n, options.words) for n in range(options.documents)]
    order = [(turn * 31 + n * 17) % len(texts) for turn in range(options.rounds) for n in range(len(texts))]
    for name, command in (("kv_aware", by_events), ("round_robin", round_robin), ("one engine", None)):
        count = 3 if command else 1  # of the same memory together
        arguments = ["--pool", f"{options.pool * 3 // count}MiB", "--tiers", tiers]
        with servers(arguments, count) as fleet, contextlib.ExitStack() as stack:
            url = stack.enter_context(router(command(fleet))) if command else fleet[0].url
            seconds, prompts, found = [], 0, {}
            with concurrent.futures.ThreadPoolExecutor(options.clients) as clients:
                answers = list(clients.map(
                    lambda asked: ask(url, fleet[0].model, texts[asked[1]], f"What of bed {asked[0]}?"),
                    enumerate(order)))
            for usage, took in answers:
                seconds.append(took)
                prompts += usage["prompt_tokens"]
                for place, tokens in usage["prompt_tokens_details"]["cached_from"].items():
                    found[place] = found.get(place, 0) + tokens
            computed = sum(server.metric("shale_engine_prefill_tokens_total") for server in fleet)
            print(f"{name}: {computed:.0f} of {prompts} prompt tokens computed ({computed / prompts:.1%}), found "
                  f"{ {place: f'{tokens / prompts:.1%}' for place, tokens in found.items() if tokens} }, "
                  f"p50 {statistics.median(seconds) * 1e3:.0f} ms, requests {[int(each.requests()) for each in fleet]}",
                  flush=True)
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=48)
    parser.add_argument("--words", type=int, default=300, help="of a document")
    parser.add_argument("--live", action="store_true", help="count what the fleet computes")
    parser.add_argument("--share", action="store_true", help="with a folder that all servers share")
    parser.add_argument("--rounds", type=int, default=3, help="of the live run: so often each document is asked about")
    parser.add_argument("--clients", type=int, default=6, help="of the live run, that ask at once")
    parser.add_argument("--pool", type=int, default=128, help="MiB, of each server in the live run")
    options = parser.parse_args()
    if options.live:
        return live(options)
    # Both are run, whatever comes of the first.
    return all([conforms(options), sticks(options)])


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
