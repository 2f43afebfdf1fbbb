"""What lossy blocks do to answers in vLLM: agreement.py MODEL FILE... Of 24 contexts of the files (jsonl, as `shale
quality` reads them), as many of each, 1,000 tokens long with their first question: an engine answers over its own exact
cache; engines over stored lossy blocks are fed that answer token by token. Prints the share of its tokens that are
their first choice, too, with the 95 % interval over contexts, and as a baseline what exact stored blocks give."""

import json
import os
import pathlib
import statistics
import sys
import tempfile

os.environ.setdefault("SHALE_VLLM_MODEL", sys.argv[1])
from test_vllm import SALT, Engine, blocks_of, settle

CONTEXTS, CONTEXT_TOKENS, ANSWER_TOKENS = 24, 1000, 16
METHODS = {"full": {}, "int8": {"method": "int8", "quality": 0.99, "floor": 0.9},
           "kivi4": {"method": "kivi4", "quality": 0.95, "floor": 0.9}}


def prompts_of(files):
    from transformers import AutoTokenizer
    tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
    prompts = []
    for file in files:
        lines = pathlib.Path(file).read_text().splitlines()[:CONTEXTS // len(files)]
        for entry in map(json.loads, lines):
            context = tokenizer(entry["context"])["input_ids"][:CONTEXT_TOKENS]
            prompts.append(context + tokenizer(f"\n\nQuestion: {entry['questions'][0]}\nAnswer:")["input_ids"])
    return prompts


def choices(engine, prompts, answers, salt):
    """The engine's next token after each beginning of each answer."""
    chosen = []
    for ids, answer in zip(prompts, answers):
        steps = engine.ask([ids + answer[:i] for i in range(len(answer))], salt=salt, max_tokens=1)
        assert all(step["cached"] >= blocks_of(ids) for step in steps), "nothing but the end is computed"
        chosen.append([step["tokens"][0] for step in steps])
    return chosen


def main():
    prompts = prompts_of(sys.argv[2:])
    scratch = pathlib.Path(tempfile.mkdtemp())
    with Engine(scratch / "plain", offloading="none") as plain:
        plain.ask(prompts)
        answers = [answer["tokens"] for answer in plain.ask(prompts, max_tokens=ANSWER_TOKENS)]
    print(f"{len(prompts)} contexts of {CONTEXT_TOKENS} tokens, {sum(map(len, answers))} tokens of answers")
    for method, options in METHODS.items():
        folder = scratch / method
        folder.mkdir(mode=0o700)
        with Engine(folder, **options) as engine:
            engine.ask(prompts, max_tokens=1)
            settle(folder)
        with Engine(folder, **options) as engine:
            chosen = choices(engine, prompts, answers, SALT if options else None)
        shares = [sum(a == b for a, b in zip(*pair)) / len(pair[1]) for pair in zip(chosen, answers)]
        spread = 1.96 * statistics.stdev(shares) / len(shares) ** 0.5
        print(f"{method:6} agreement {statistics.mean(shares):.3f} ± {spread:.3f}", flush=True)


if __name__ == "__main__":
    main()
