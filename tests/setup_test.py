"""What ./shale sets up, by stand-ins for the programs that it calls: nothing is built, installed or downloaded."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

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
        # Debian's package manager has nothing to do, unless a test says so.
        self.stub("dpkg-query", 'shift 3; for name; do echo "installed $name"; done')
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
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/bash\nprintf "%s\\n" "{name} ($PWD) $*" >>"{self.calls}"\n{body}\n')
        path.chmod(0o755)

    def run_in(self, checkout, *arguments, **environment):
        return subprocess.run([checkout / "shale", *arguments], env=self.environment | environment, text=True,
                              capture_output=True, stdin=subprocess.DEVNULL)

    def shale(self, *arguments, **environment):
        return self.run_in(self.checkout, *arguments, **environment)

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


if __name__ == "__main__":
    unittest.main()
