#!/usr/bin/env python3
"""Puts the contexts and questions of a `shale quality` run through kvpress, and says where the scores differ.

    shale quality --contexts hotpotqa_dev100.jsonl --compare knorm,snapkv,random --keeps 0.5 --bits 16 \\
        --generate full,knorm@0.5,snapkv@0.5,random@0.5 --rows rows.jsonl
    pip install -r requirements.txt
    ./compare.py --model smollm2-135m.gguf --contexts hotpotqa_dev100.jsonl --rows rows.jsonl

Every row that has a generated answer and accepted ones is repeated: the same GGUF file in fp32, the same tokens, the
context compressed without its question by kvpress's method of the same name, a greedy answer of as many tokens, and the
same F1. Prints a line a method and keep: both means, and the mean of the differences with its bootstrap interval of 95 %
over contexts. `--json` prints each answer.
"""

import argparse
import collections
import json
import pathlib
import random
import re
import string
import sys

import kvpress
import torch
import transformers

# Windows, sinks and kernels as Shale has them by default (docs/methods/scorers.md).
PRESSES = {
    "expected_attention": lambda ratio: kvpress.ExpectedAttentionPress(compression_ratio=ratio),
    "keydiff": lambda ratio: kvpress.KeyDiffPress(compression_ratio=ratio),
    "knorm": lambda ratio: kvpress.KnormPress(compression_ratio=ratio),
    "random": lambda ratio: kvpress.RandomPress(compression_ratio=ratio),
    "snapkv": lambda ratio: kvpress.SnapKVPress(compression_ratio=ratio),
    "streaming": lambda ratio: kvpress.StreamingLLMPress(compression_ratio=ratio),
    "tova": lambda ratio: kvpress.TOVAPress(compression_ratio=ratio),
    "adakv:snapkv": lambda ratio: kvpress.AdaKVPress(kvpress.SnapKVPress(compression_ratio=ratio)),
}
MARKER = "[[user-text]]"


def words(text):
    """As profile/metrics/f1.cc: lower case, no punctuation, no articles."""
    text = "".join(c for c in text.lower() if c not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", text).split()


def f1(answer, accepted):
    def of(one):
        given, wanted = collections.Counter(words(answer)), collections.Counter(words(one))
        if not given or not wanted:
            return float(given == wanted)
        return 2 * (given & wanted).total() / (given.total() + wanted.total())

    return max(of(one) for one in accepted)


def interval(groups, resamples=1000):
    """Mean of all values, and its interval over whole groups drawn with replacement."""

    def mean(chosen):
        values = [value for group in chosen for value in group]
        return sum(values) / len(values)

    generator = random.Random(0)
    means = sorted(mean(generator.choices(groups, k=len(groups))) for _ in range(resamples))
    return mean(groups), means[int(0.025 * resamples)], means[int(0.975 * resamples)]


class Peer:
    def __init__(self, path):
        path = pathlib.Path(path)
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            path.parent, gguf_file=path.name, dtype=torch.float32
        )
        self.model.eval()
        rendered = self.tokenizer.apply_chat_template(
            [{"role": "user", "content": MARKER}], tokenize=False, add_generation_prompt=True
        )
        self.head, self.tail = rendered.split(MARKER)

    def tokens(self, text):
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def compress(self, context, press):
        """The context's tokens and its cache; as the template's user turn begins, tokenised on its own."""
        ids = torch.tensor([self.tokens(self.head) + self.tokens(context)])
        cache = transformers.DynamicCache()
        with torch.no_grad():
            if press is None:
                self.model.model(input_ids=ids, past_key_values=cache)
            else:
                with press(self.model):
                    self.model.model(input_ids=ids, past_key_values=cache)
        return ids.shape[1], cache

    def answer(self, length, cache, question, tokens_max):
        """Greedy, at the positions that follow the whole context. The cache is left as it was."""
        held = [cache.get_seq_length(layer) for layer in range(len(cache))]
        ids = self.tokens("\n\n" + question) + self.tokens(self.tail)
        position, answer = length, []
        with torch.no_grad():
            while len(answer) < tokens_max:
                logits = self.model(
                    input_ids=torch.tensor([ids]),
                    past_key_values=cache,
                    position_ids=torch.arange(position, position + len(ids))[None],
                    logits_to_keep=1,
                ).logits
                position += len(ids)
                ids = [int(logits[0, -1].argmax())]
                if ids[0] in self.ends():
                    break
                answer += ids
        for layer, count in enumerate(held):
            cache.layers[layer].keys = cache.layers[layer].keys[:, :, :count]
            cache.layers[layer].values = cache.layers[layer].values[:, :, :count]
        return self.tokenizer.decode(answer, skip_special_tokens=True).strip()

    def ends(self):
        ends = self.model.generation_config.eos_token_id
        ends = ends if isinstance(ends, list) else [ends]
        return {*ends, self.tokenizer.eos_token_id, *self.tokenizer.convert_tokens_to_ids(["<|im_end|>"])}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="the GGUF file that the rows were made with")
    parser.add_argument("--contexts", required=True, nargs="+", help="the files that the rows were made from")
    parser.add_argument("--rows", required=True, help="what `shale quality --rows` left")
    parser.add_argument("--answer-tokens", type=int, default=32, help="longest answer, as it was for the rows")
    parser.add_argument("--json", action="store_true", help="a line an answer")
    options = parser.parse_args()

    contexts = {}
    for file in map(pathlib.Path, options.contexts):
        for line in file.read_text().splitlines():
            one = json.loads(line)
            contexts[one.get("dataset", file.stem), one["id"]] = one
    wanted = collections.defaultdict(list)  # by context, method and keep
    for line in pathlib.Path(options.rows).read_text().splitlines():
        row = json.loads(line)
        scorer = row["method"].split("+")[0]
        known = scorer == "full" or scorer in PRESSES and row["bits"] == 16
        judged = "gold_f1" in row.get("answer", {})
        if judged and known and not row["question_seen"] and not row["tokens_cut"]:
            wanted[row["dataset"], row["context"], scorer, row["keep"]].append(row)
    if not wanted:
        sys.exit("no row has a generated answer, accepted ones, a method that kvpress has and 16 bits")

    peer = Peer(options.model)
    found = collections.defaultdict(list)  # by method and keep: a group a context, of (theirs, ours)
    for (dataset, name, scorer, keep), rows in wanted.items():
        context = contexts[dataset, name]
        press = None if scorer == "full" else PRESSES[scorer](1 - keep)
        length, cache = peer.compress(context["context"], press)
        if length != rows[0]["tokens"]:
            sys.exit(f"{name}: {length} tokens here, {rows[0]['tokens']} in the rows: not the same tokens")
        group = []
        for row in rows:
            answer = peer.answer(length, cache, context["questions"][row["question"]], options.answer_tokens)
            score = f1(answer, context["answers"][row["question"]])
            group.append((score, row["answer"]["gold_f1"]))
            if options.json:
                print(json.dumps({"dataset": dataset, "context": name, "question": row["question"], "method": scorer,
                                  "keep": keep, "kvpress_gold_f1": score, "gold_f1": row["answer"]["gold_f1"],
                                  "kvpress_answer": answer, "answer": row["text"]}), flush=True)
        found[scorer, keep].append(group)
    if options.json:
        return
    print(f"{'METHOD':<18} {'KEEP':>4}  {'ANSWERS':>7}  {'KVPRESS':>7}  {'SHALE':>5}  SHALE - KVPRESS")
    for (scorer, keep), groups in sorted(found.items()):
        theirs = interval([[pair[0] for pair in group] for group in groups])[0]
        ours = interval([[pair[1] for pair in group] for group in groups])[0]
        mean, low, high = interval([[pair[1] - pair[0] for pair in group] for group in groups])
        print(f"{scorer:<18} {keep:>4}  {sum(map(len, groups)):>7}  {theirs:>7.3f}  {ours:>5.3f}  "
              f"{mean:+.3f} [{low:+.3f}, {high:+.3f}]")


if __name__ == "__main__":
    main()
