#!/usr/bin/env python3
"""Holds the sources to the house rules; prints what breaks them and exits 1.

- layering: a room of src/ includes only itself and rooms of rows above its own in ARCHITECTURE.md's table
- composition: `runtime` alone opens a cache, and so puts pool, tiers and engine together
- words: none of those that CONTRIBUTING.md's table of words retires
- the drawing of rooms in ARCHITECTURE.md is what tools/draw_rooms.py draws
- formatting: clang-format-19, where it is installed
- names in anonymous namespaces: once in a room, and not those of functions of headers that others of the room call, since
  sources of a room are compiled together (shale_unite of cmake/ShaleQuickBuild.cmake)
- length: at most 400 lines a file, except files in tools/long_files.txt, which may only get shorter; at most 60 a
  function, 5,000 a room of src/, and 40 files a folder of it
- headers say #pragma once (or are -inl.h, included once per instruction set); nothing is left "to do"; text files end in one newline and have no tabs or trailing blanks
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import draw_rooms

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE_FOLDERS = ("src", "include", "tests", "fuzz", "examples")
SOURCE_SUFFIXES = (".h", ".hpp", ".cc", ".c")
LINES_MAX = 400
FUNCTION_LINES_MAX = 60
ROOM_LINES_MAX = 5000
FOLDER_FILES_MAX = 40
# These name old words so that whoever uses one is told the new one, or are texts for models.
MAY_NAME_OLD_WORDS = ("CHANGELOG.md", "CONTRIBUTING.md", "src/cli/renamed_options.cc", "src/server/answer_request.cc",
                      "tests/server/answer_request_test.cc", "tests/cli/usage_test.cc", "src/profile/prior_texts.cc",
                      "src/loadtest/serve/serve_mix.cc")
LEFT_OVER = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")


def sources():
    for folder in SOURCE_FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in SOURCE_SUFFIXES:
                yield path


def room_rows():
    """{room: row} from the table under "Rooms, lowest first"."""
    section = (ROOT / "ARCHITECTURE.md").read_text().split("## Rooms, lowest first")[1].split("\n## ")[0]
    first_cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return {room: row for row, cell in enumerate(first_cells) for room in re.findall(r"`(\w+)`", cell)}


def check_layering():
    rows = room_rows()
    for folder in sorted(path.name for path in (ROOT / "src").iterdir() if path.is_dir()):
        if folder not in rows:
            yield f"src/{folder}: is not a room of ARCHITECTURE.md's table"
    for path in sorted((ROOT / "src").glob("*/**/*")):
        room = path.relative_to(ROOT / "src").parts[0]
        if path.suffix not in (".h", ".cc") or room not in rows:
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            include = re.match(r'\s*#include "(\w+)/', line)
            other = include and include.group(1)
            if other in rows and other != room and rows[other] >= rows[room]:
                yield f"{path.relative_to(ROOT)}:{number}: {room} must not include {other}"


def check_composition():
    for path in sorted((ROOT / "src").rglob("*.cc")):
        if path.relative_to(ROOT / "src").parts[0] in ("cache", "runtime"):
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if re.search(r"\bCache::open\(", line):
                yield f"{path.relative_to(ROOT)}:{number}: opens a cache of its own: src/runtime/engine_stack.h does"


def check_text():
    for path in sources():
        name, text = path.relative_to(ROOT), path.read_text()
        if path.suffix in (".h", ".hpp") and "-inl.h" not in path.name and "#pragma once" not in text:
            yield f"{name}: no #pragma once"
        if not text.endswith("\n") or text.endswith("\n\n"):
            yield f"{name}: does not end in one newline"
        for number, line in enumerate(text.splitlines(), 1):
            if LEFT_OVER.search(line):
                yield f"{name}:{number}: left over: {line.strip()}"
            if "\t" in line or line != line.rstrip():
                yield f"{name}:{number}: tab or trailing blank"


def retired_words():
    """Words in backticks in the second column of the table under "Words", each as a pattern that finds it in names, too."""
    table = (ROOT / "CONTRIBUTING.md").read_text().split("## Words")[1].split("\n## ")[0]
    cells = [line.split("|")[2] for line in table.splitlines() if line.startswith("| ") and line.count("|") >= 5]
    words = [word for cell in cells for word in re.findall(r"`([^`]+)`", cell)]
    return {word: re.compile(rf"(?<![A-Za-z-]){re.escape(word)}(?![a-z])|{re.escape(word[0].upper() + word[1:])}(?![a-z])")
            for word in words}


def check_words():
    words = retired_words()
    pages = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for path in [*sources(), *pages]:
        name = str(path.relative_to(ROOT))
        if name in MAY_NAME_OLD_WORDS:
            continue
        text = path.read_text()
        here = {word: pattern for word, pattern in words.items() if word[1:] in text}
        for number, line in enumerate(text.splitlines() if here else (), 1):
            for word, pattern in here.items():
                if pattern.search(line):
                    yield f"{name}:{number}: says {word}, for which CONTRIBUTING.md has another word"


def check_drawing():
    if draw_rooms.drawn() != draw_rooms.drawing():
        yield "ARCHITECTURE.md: the drawing of rooms is not that of the sources: tools/draw_rooms.py --write"


NAMES = (re.compile(r"^(?:struct|class|enum(?: class)?)\s+(\w+)"),
         re.compile(r"^(?:inline |static )*constexpr [^=({]*?\b(k\w+)"),
         re.compile(r"^(?!using|return|static_assert|namespace|template|#|//|[A-Z_]+\()[A-Za-z_][\w:<>,&*\s\[\]]*?[\s&*>](\w+)\("))


def anonymous_names(text):
    inside = False
    for line in text.splitlines():
        inside = line == "namespace {" or (inside and not line.startswith("}  // namespace"))
        found = inside and next(filter(None, (pattern.match(line) for pattern in NAMES)), None)
        if found:
            yield found.group(1)


def check_anonymous_names():
    alone = set(re.findall(r"src/\S+\.cc", (ROOT / "CMakeLists.txt").read_text()))
    declared = {found.group(1) for path in (ROOT / "src").rglob("*.h") for line in path.read_text().splitlines()
                if (found := NAMES[2].match(line))}
    for room in sorted(path for path in (ROOT / "src").iterdir() if path.is_dir()):
        texts = {str(path.relative_to(ROOT)): path.read_text() for path in sorted(room.rglob("*.cc"))}
        united = {name: text for name, text in texts.items() if name not in alone and "foreach_target.h" not in text}
        owners = {}
        for name, text in united.items():
            for word in set(anonymous_names(text)):
                owners.setdefault(word, []).append(name)
        for word, names in owners.items():
            if len(names) > 1:
                yield f"{' and '.join(names)}: both have a {word} in an anonymous namespace"
            calls = re.compile(rf"(?<![.>:\w]){word}\(")
            if word in declared and any(name not in names and calls.search(text) for name, text in united.items()):
                yield f"{names[0]}: {word} is the name of a function of a header, too, that others of the room call"


def check_lengths():
    ratchet = ROOT / "tools/long_files.txt"
    rows = [line.split() for line in ratchet.read_text().splitlines() if line and not line.startswith("#")]
    allowed = {name: int(lines) for name, lines in rows}
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in sources()}
    for name, lines in lengths.items():
        if lines > allowed.get(name, LINES_MAX):
            yield f"{name}: {lines} lines, {allowed.get(name, LINES_MAX)} are allowed"
    for name, lines in allowed.items():
        if lengths.get(name, 0) < lines:
            yield f"tools/long_files.txt: {name} has {lengths.get(name, 0)} lines now: lower its number, or remove it"


def check_functions():
    """As clang-format lays them out: a line that ends in a brace, up to the brace that closes it, as far to the left."""
    for path in [*(ROOT / "src").rglob("*.h"), *(ROOT / "src").rglob("*.cc"), *(ROOT / "include").rglob("*.h*")]:
        begun = {}
        for number, line in enumerate(path.read_text().splitlines(), 1):
            indent = len(line) - len(line.lstrip())
            if line.endswith("{") and indent <= 4 and not re.match(r"\s*(namespace|class|struct|enum|union|extern)\b", line):
                begun[indent] = number
            if line.lstrip().startswith("}") and indent in begun:
                lines = number - begun.pop(indent) + 1
                if lines > FUNCTION_LINES_MAX and not line.endswith("};"):  # those are data
                    yield f"{path.relative_to(ROOT)}:{number}: a function of {lines} lines, {FUNCTION_LINES_MAX} are allowed"


def check_rooms():
    for room in sorted(path for path in (ROOT / "src").iterdir() if path.is_dir()):
        lines = sum(len(path.read_text().splitlines()) for path in room.rglob("*") if path.suffix in (".h", ".cc"))
        if lines > ROOM_LINES_MAX:
            yield f"src/{room.name}: {lines} lines, {ROOM_LINES_MAX} are allowed: part of it is a room of its own"
        for folder in [room, *(path for path in room.rglob("*") if path.is_dir())]:
            files = sum(path.is_file() for path in folder.iterdir())
            if files > FOLDER_FILES_MAX:
                yield f"{folder.relative_to(ROOT)}: {files} files, {FOLDER_FILES_MAX} are allowed: give them folders"


def check_format():
    formatter = shutil.which("clang-format-19")
    if not formatter:
        print("style: clang-format-19 is not installed, so formatting is not checked")
        return
    files = [str(path) for path in sources()]
    run = subprocess.run([formatter, "--dry-run", "-Werror", *files], capture_output=True, text=True, cwd=ROOT)
    wrong = {os.path.relpath(match, ROOT) for match in re.findall(r"^(\S+?):\d+:\d+: error:", run.stderr, re.M)}
    yield from (f"{name}: clang-format-19 -i would change it" for name in sorted(wrong))
    if run.returncode != 0 and not wrong:
        yield run.stderr.strip()


def main():
    checks = (check_layering, check_composition, check_text, check_words, check_drawing, check_lengths, check_functions,
              check_rooms, check_anonymous_names, check_format)
    found = [problem for check in checks for problem in check()]
    for problem in found:
        print(problem)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
