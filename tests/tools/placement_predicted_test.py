"""What tools/placement_predicted asks the simulator, told by a program that stands in for it."""

import json
import unittest

from tool_test import ToolTest

STAND_IN = """#!/usr/bin/env python3
import json, pathlib, sys
words = sys.argv[1:]
if words == ["--reference"]:
    print("| `--methods METHOD,...` | What may be chosen | `int8` |  |")
else:
    given = dict(zip(words, words[1:]))
    profiles = pathlib.Path(given["--profiles"]).read_text().splitlines()
    methods = [row["method"] for line in profiles for row in json.loads(line)["rows"]]
    print(json.dumps({"methods": methods, "qualities": given.get("--qualities"), "planner": given["--planner"], "alpha": given["--alpha"]}))
"""


class PlacementPredicted(ToolTest):
    def setUp(self):
        self.load("placement_predicted", STAND_IN)
        self.profiles = self.folder / "all.jsonl"
        self.profiles.write_text(json.dumps({"rows": [{"method": method} for method in ("keydiff", "int8", "kivi4")]}) + "\n")

    def cells(self, policy, setting):
        answers = [{"context": 0, "question": 0, "arrival": 0, "prompt_tokens": 64, "completion_tokens": 1, "ttft": 0.1, "forms": forms}
                   for forms in ([], [{"method": "keydiff", "keep": 0.5}])]
        answers.append({"context": 0, "question": 0, "ttft": None, "forms": []})
        rows = [{"setting": f"cells 8; model; paper's tiers; --pool=1MB{setting}"}, {"value": "requests_per_s", "is": 1},
                {"cell": {"policy": policy, "answers": answers}},
                {"context": 0, "question": 0, "method": "keydiff", "keep": 0.5, "agreement": 0.5}]
        path = self.folder / "cells.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return self.tool.Cells(path)

    def asked(self, policy, setting):
        cells = self.cells(policy, setting)
        return self.tool.predicted(cells.cells[0], cells, {0: 1}, "hardware", self.profiles, self.folder)

    def test_shale_chooses_among_the_methods_of_its_servers(self):
        asked = self.asked("shale, alpha 2", "; --methods=keydiff,knorm; --max-tokens=24")
        self.assertEqual(asked, {"methods": ["keydiff"], "qualities": "expected", "planner": "shale", "alpha": "2"})
        self.assertEqual(self.asked("shale, alpha 2", "")["methods"], ["int8"], "the default of the server")

    def test_others_name_their_own(self):
        self.assertIn("kivi4", self.asked("fixed:kivi4", "; --methods=keydiff")["methods"])

    def test_agreement_is_that_of_the_report(self):
        cells = self.cells("shale, alpha 2", "")
        self.assertEqual(cells.agreement(cells.cells[0]), 0.75, "what failed is not in it")


if __name__ == "__main__":
    unittest.main()
