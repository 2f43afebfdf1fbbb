"""LMCache's own tests of its adapter of native plug-ins, with Shale's in place of their mock. Left out are those that
parse configurations of others, and those of a mock that records what it is given."""

import pathlib
import sys
import tempfile

from shale.lmcache import ShaleConnector

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
import upstream

PATH = "tests/v1/distributed/test_native_connector_l2_adapter.py"
CLASSES = ("TestEventFdInterface", "TestStoreInterface", "TestLookupAndLockInterface", "TestUnlockInterface",
           "TestLoadInterface", "TestEndToEndWorkflow", "TestClose", "TestDeleteInterface", "TestUsageTracking")


class OnDisk(ShaleConnector):
    def __init__(self):
        self._folder = tempfile.TemporaryDirectory(prefix="shale-upstream-")
        super().__init__(f"file://{self._folder.name}?size=64MiB")

    def close(self):
        super().close()
        self._folder.cleanup()


globals().update(upstream.tests(upstream.source("lmcache", "lmcache", PATH), "lmcache_native_connector_tests", CLASSES,
                                {"MockNativeConnector": OnDisk}))
