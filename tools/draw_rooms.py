#!/usr/bin/env python3
"""Draws which room of src/ includes which, as ARCHITECTURE.md shows it; --write puts the drawing there.

An arrow stands for includes that no other arrows imply: where a room includes both its neighbour and what that neighbour
includes, only the arrow to the neighbour is drawn. The test `style` compares the drawing with the sources.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "ARCHITECTURE.md"
BEGIN, END = "<!-- rooms: made by tools/draw_rooms.py -->\n", "<!-- end of rooms -->"


def included():
    """{room: rooms whose headers its files include}."""
    rooms = {path.name: set() for path in (ROOT / "src").iterdir() if path.is_dir()}
    for path in sorted((ROOT / "src").glob("*/**/*")):
        if path.suffix in (".h", ".cc"):
            room = path.relative_to(ROOT / "src").parts[0]
            others = re.findall(r'^\s*#include "(\w+)/', path.read_text(), re.M)
            rooms[room] |= {other for other in others if other in rooms and other != room}
    return rooms


def below(room, includes):
    """All rooms that can be reached from it."""
    seen, left = set(), list(includes[room])
    while left:
        other = left.pop()
        if other not in seen:
            seen.add(other)
            left += includes[other]
    return seen


def drawing():
    includes = included()
    arrows = []
    for room in sorted(includes):
        implied = set().union(*(below(other, includes) for other in includes[room])) if includes[room] else set()
        arrows += [f"  {room} --> {other}" for other in sorted(includes[room] - implied)]
    return "```mermaid\ngraph TD\n" + "\n".join(arrows) + "\n```\n"


def drawn():
    """The drawing in the page; None where it has no place for one."""
    text = PAGE.read_text()
    return text.split(BEGIN)[1].split(END)[0] if BEGIN in text and END in text else None


def main():
    if sys.argv[1:] == ["--write"]:
        before, after = PAGE.read_text().split(BEGIN)[0], PAGE.read_text().split(END)[1]
        PAGE.write_text(before + BEGIN + drawing() + END + after)
    else:
        print(drawing(), end="")


if __name__ == "__main__":
    main()
