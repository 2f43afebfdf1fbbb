"""What README.md shows of the module runs as it stands."""

import pathlib
import re

README = pathlib.Path(__file__).resolve().parent.parent.parent / "README.md"


def block_with(words):
    (found,) = (block for block in re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.M | re.S) if words in block)
    return found


def test_the_store_finds_what_it_saved(tmp_path, capsys):
    code = block_with("shale.Store")
    assert "file:///tmp/kv" in code
    exec(code.replace("/tmp/kv", str(tmp_path)), {})
    assert capsys.readouterr().out == "4 blocks are there\n"
