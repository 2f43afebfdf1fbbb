"""The tests that another project has of its own, from its source distribution, to be run on Shale's plug-in."""

import hashlib
import importlib.metadata
import os
import pathlib
import re
import sys
import tarfile
import types
import urllib.parse
import urllib.request

_CACHE = pathlib.Path(sys.prefix).parent / "upstream"  # beside the environment that this runs in


def source(package, project, path):
    """The text of a file of the release that is installed, by its path there. `project`: whose release it is."""
    version = importlib.metadata.version(package).partition("+")[0]
    archive = _CACHE / f"{project}-{version}.tar.gz"
    if not archive.exists():
        index = f"https://pypi.org/simple/{project}/"
        with urllib.request.urlopen(index, timeout=120) as reply:
            page = reply.read().decode()
        link = re.search(rf'href="([^"]*/{re.escape(archive.name)})#sha256=(\w+)"', page)
        if not link:
            raise LookupError(f"{index} has no {archive.name}")
        with urllib.request.urlopen(urllib.parse.urljoin(index, link[1]), timeout=120) as reply:
            data = reply.read()
        if hashlib.sha256(data).hexdigest() != link[2]:
            raise OSError(f"{link[1]} is not what the index says it is")
        _CACHE.mkdir(parents=True, exist_ok=True)
        partial = archive.with_suffix(f".{os.getpid()}")
        partial.write_bytes(data)
        partial.replace(archive)
    with tarfile.open(archive) as files:
        return files.extractfile(f"{project}-{version}/{path}").read().decode()


def tests(text, name, names, replaced):
    """What of those tests' module is to be collected: the named tests and classes of them, and its fixtures.
    `replaced`: by name, what stands in the module in place of its own."""
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(text, name, "exec"), module.__dict__)
    vars(module).update(replaced)
    missing = [wanted for wanted in names if wanted not in vars(module)]
    if missing:
        raise LookupError(f"{name} has no {', '.join(missing)}")
    return {key: value for key, value in vars(module).items()
            if key in names or type(value).__name__ == "FixtureFunctionDefinition"}
