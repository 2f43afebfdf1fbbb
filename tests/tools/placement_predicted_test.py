"""What tools/placement_predicted asks of the program, told by one that stands in for it."""

import json
import pathlib
import unittest

from tool_test import ToolTest

STAND_IN = """#!/usr/bin/env python3
import json, pathlib, sys
words = sys.argv[1:]
given = dict(zip(words, words[1:]))
if words == ["--reference"]:
    print("| `--methods METHOD,...` | What may be chosen | `int8` |  |")
elif words[0] == "profile":
    held_out = pathlib.Path(given["--held-out"]).read_text().splitlines()
    print(json.dumps({"text": pathlib.Path(given["--context"]).read_text(), "tokens": given["--context-tokens"], "question": given["--question"],
                      "held_out": held_out, "methods": given["--profile-methods"], "rows": []}))
else:
    profiles = pathlib.Path(given["--profiles"]).read_text().splitlines()
    trace = [json.loads(line) for line in pathlib.Path(given["--trace"]).read_text().splitlines()]
    methods = [row["method"] for line in profiles for row in json.loads(line)["rows"]]
    print(json.dumps({"methods": methods, "qualities": given.get("--qualities"), "planner": given["--planner"], "alpha": given["--alpha"],
                      "warm": given["--warm"], "spread": given["--spread-profiles"], "trace": trace}))
"""


def profile(methods, decode_s=1, **more):
    rows = [{"method": method, "keep": 1, "decode_seconds": decode_s} for method in methods]
    return {"id": "one-1", "tokens": 48, "full_bytes": 10, "rows": rows, **more}


class PlacementPredicted(ToolTest):
    def setUp(self):
        self.load("placement_predicted", STAND_IN)

    def cells(self, policy="lru", setting="", files="one.jsonl", of_each=1):
        answers = [{"context": 0, "question": 1, "arrival": 0, "prompt_tokens": 70, "completion_tokens": 3, "ttft": 0.1, "forms": forms}
                   for forms in ([], [{"method": "keydiff", "keep": 0.5, "tokens": 48}])]
        answers.append({"context": 0, "question": 0, "ttft": None, "forms": []})
        rows = [{"setting": f"cells 8; model; {files}; {of_each} contexts of 50 tokens; paper's tiers; --pool=1MB{setting}"},
                {"value": "requests_per_s", "is": 1}, {"cell": {"policy": policy, "settle_seconds": 5, "answers": answers}},
                {"context": 0, "question": 1, "method": "keydiff", "keep": 0.5, "agreement": 0.5}]
        path = self.folder / "cells.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return self.tool.Cells(path)

    def asked(self, policy, setting):
        cells, profiles = self.cells(policy, setting), [profile(("keydiff", "int8", "kivi4"))]
        return self.tool.predicted(cells.cells[0], cells, self.tool.blocks_of(cells, profiles), "hardware", profiles, self.folder)

    def test_shale_chooses_among_the_methods_of_its_servers(self):
        asked = self.asked("shale, alpha 2", "; --methods=keydiff,knorm; --max-tokens=24")
        self.assertEqual((asked["methods"], asked["qualities"], asked["planner"], asked["alpha"]), (["keydiff"], "expected", "shale", "2"))
        self.assertEqual(self.asked("shale, alpha 2", "")["methods"], ["int8"], "the default of the server")

    def test_others_name_their_own(self):
        self.assertIn("kivi4", self.asked("fixed:kivi4", "; --methods=keydiff")["methods"])

    def test_agreement_is_that_of_the_report(self):
        cells = self.cells("shale, alpha 2", "")
        self.assertEqual(cells.agreement(cells.cells[0]), 0.75, "what failed is not in it")

    def test_questions_are_in_no_block(self):
        asked = self.asked("lru", "")
        self.assertEqual((asked["warm"], asked["spread"], len(asked["trace"])), ("1", "off", 3))
        for request, question in zip(asked["trace"], (0, 22, 22)):
            self.assertEqual((len(request["hash_ids"]), request["unnamed_length"], request["input_length"]), (3, question, 48 + question))

    def test_contexts_that_nobody_asked_take_room_too(self):
        cells = self.cells(of_each=2)
        self.assertEqual(self.tool.blocks_of(cells, [profile(())] * 2), {0: 3, 1: 4}, "as much as the others' prompts")
        self.assertEqual(self.tool.blocks_of(cells, [profile((), context=0), profile((), context=1, tokens=33)]), {0: 3, 1: 2})

    def test_contexts_take_profiles_of_their_data_set(self):
        cells = self.cells(files="one.jsonl; two.jsonl", of_each=2)
        path = self.folder / "profiles.jsonl"
        rows = [profile(("int8",), 1), profile(("int8",), 2, id="two-1"), profile(("int8",), 30, id="two-2")]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        taken = self.tool.profiles_of(path, cells)
        self.assertEqual([row["id"] for row in taken], ["one-1", "one-1", "two-1", "two-2"])
        self.assertEqual({each["decode_seconds"] for row in taken for each in row["rows"]}, {1}, "the least")

    def test_contexts_of_the_run_are_measured_on_other_questions(self):
        (self.folder / "contexts").mkdir()
        texts = {"one": [["Who?", "What?", "When\nis it?"], ["How?"]]}
        for name, contexts in texts.items():
            lines = [json.dumps({"id": str(i), "context": f"words {i}", "questions": asked}) for i, asked in enumerate(contexts)]
            (self.folder / "contexts" / f"{name}.jsonl").write_text("\n".join(lines))
        cells, path = self.cells("fixed:kivi4", "; --methods=keydiff", of_each=2), self.folder / "profiles.jsonl"
        self.tool.measure_profiles(path, cells)
        made = [json.loads(line) for line in path.read_text().splitlines()]
        self.assertEqual([(row["context"], row["text"], row["question"], row["held_out"]) for row in made],
                         [(0, "words 0", "Who?", ["When is it?"]), (1, "words 1", self.tool.OPENING, ["How?"])])
        self.assertEqual((made[0]["tokens"], made[0]["methods"]), ("50", "keydiff,kivi4"))
        self.tool.measure_profiles(path, cells)
        self.assertEqual(len(path.read_text().splitlines()), 2, "goes on where it stopped")

    def test_the_engine_is_measured_once(self):
        path = pathlib.Path(self.folder, "engine.jsonl")
        path.write_text('{"test": "prefill"}\n')
        self.assertEqual(self.tool.engine_rows(path, None), [{"test": "prefill"}])


if __name__ == "__main__":
    unittest.main()
