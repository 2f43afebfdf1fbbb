"""What tools/placement_bound asks of contexts, told by a program that stands in for it."""

import json
import unittest

from tool_test import ToolTest

STAND_IN = """#!/usr/bin/env python3
import json, pathlib, sys
given = dict(zip(sys.argv[1:], sys.argv[2:]))
held_out = pathlib.Path(given["--held-out"]).read_text().splitlines()
print(json.dumps({"asked": given["--question"], "held_out": held_out, "rows": [{"held_out_agreement": [1] * len(held_out)}]}))
"""


class PlacementBound(ToolTest):
    def setUp(self):
        self.load("placement_bound", STAND_IN)
        (self.folder / "contexts").mkdir()
        for name in self.tool.SETS:
            questions = ["Who?"] if name == "squality" else ["Who?", "What\nis it?", "Why?", "How?", "When?"]
            row = {"id": name, "context": "words", "questions": questions}
            (self.folder / "contexts" / f"{name}.jsonl").write_text(json.dumps(row) + "\n")

    def test_what_is_measured_is_not_what_is_asked(self):
        path = self.folder / "profiles.jsonl"
        made = {row["id"]: row for row in self.tool.profiles(path)}
        self.assertEqual((made["xquad_en"]["asked"], made["xquad_en"]["held_out"]), ("Who?", ["What is it?", "Why?", "How?"]))
        self.assertEqual((made["squality"]["asked"], made["squality"]["held_out"]), (self.tool.OPENING, ["Who?"]))
        self.assertEqual(self.tool.profiles(path), list(made.values()), "goes on where it stopped")

    def test_profiles_without_held_out_questions_are_refused(self):
        path = self.folder / "profiles.jsonl"
        path.write_text(json.dumps({"id": "xquad_en", "rows": [{"agreement": 1}]}) + "\n")
        with self.assertRaisesRegex(SystemExit, "held-out"):
            self.tool.profiles(path)


if __name__ == "__main__":
    unittest.main()
