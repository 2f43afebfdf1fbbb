"""Several `shale serve` behind a router of others, as contexts that end what they start."""

import contextlib
import json
import os
import pathlib
import re
import signal
import socket
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


def prompt(text, question):
    return f"{text}\nQuestion: {question}\nAnswer:"


def ask(url, model, text, question, due=None):
    """The answer's usage, and the seconds since it was due, or since now."""
    due = due or time.monotonic()
    body = {"model": model, "prompt": prompt(text, question), "temperature": 0, "max_tokens": 1}
    usage = post(url + "/v1/completions", body)["usage"]
    return usage, time.monotonic() - due


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
        answer = json.loads(line)
        self.url, self.model = answer["url"], answer["model"]
        self.events, self.replay = answer["kv_events"], answer["kv_events_replay"]

    def metric(self, name, **labels):
        """The sum of its series that have these labels."""
        text = urllib.request.urlopen(self.url + "/metrics").read().decode()
        series = re.findall(rf"^{re.escape(name)}(\{{[^}}]*\}})? (\S+)$", text, re.M)
        return sum(float(value) for found, value in series
                   if all(f'{label}="{wanted}"' in found for label, wanted in labels.items()))

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


@contextlib.contextmanager
def redis():
    """The URL of a Redis server with nothing in it."""
    script = pathlib.Path(__file__).resolve().parent.parent / "redis" / "serve"
    process = subprocess.Popen([script, str(free_port())], stdout=subprocess.PIPE, text=True,
                               env=os.environ | {"SHALE_REDIS_MEMORY": "8gb"})
    try:
        yield process.stdout.readline().strip()
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
