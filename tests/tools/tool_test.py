"""What tests of tools share: the tool as a module, and a program that stands in for Shale's."""

import importlib.machinery
import importlib.util
import os
import pathlib
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"


class ToolTest(unittest.TestCase):
    def load(self, name, stand_in):
        """Makes tools/`name` self.tool, which finds data in self.folder and calls the program there whose text is `stand_in`."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        program = self.folder / "shale"
        program.write_text(stand_in)
        program.chmod(0o700)
        os.environ.update(SHALE_PROGRAM=str(program), SHALE_DATA_DIR=str(self.folder))
        loader = importlib.machinery.SourceFileLoader(name, str(TOOLS / name))
        self.tool = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
        loader.exec_module(self.tool)
