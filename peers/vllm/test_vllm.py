"""The connector in a real vLLM on this machine's processor: `./shale test --peers vllm`.

Every test's engines are processes of their own, so that what they find comes from the store. Texts are compared with
those of equally long hits of vLLM's own prefix cache, for what vLLM answers depends on how long a hit is.
"""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import pytest

MODEL = os.environ["SHALE_VLLM_MODEL"]
PROMPTS = int(os.environ.get("SHALE_VLLM_PROMPTS", "12"))
OWN_CACHE_GIB = 1 + PROMPTS // 25  # holds every prompt: some thousand tokens each, of 23 KB
BLOCK = 128
SALT = "shale-lossy"


class Engine:
    """engine.py, and a folder for its store."""

    def __init__(self, folder, size="4GiB", offloading=None, one_process=False, **options):
        options = offloading or {"tiers": f"file://{folder}?size={size}", **options}
        self.log = open(f"{folder}.log", "a")
        # A session of its own: the engine's processes end with it. As many threads with a connector as without, which
        # vLLM's answers depend on.
        self.process = subprocess.Popen(
            [sys.executable, pathlib.Path(__file__).with_name("engine.py"), MODEL,
             *([] if offloading == "none" else [json.dumps(options)])],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True, start_new_session=True,
            env=os.environ | {"VLLM_CPU_KVCACHE_SPACE": str(OWN_CACHE_GIB), "VLLM_CPU_NUM_OF_RESERVED_CPU": "1",
                              "VLLM_ENABLE_V1_MULTIPROCESSING": str(int(not one_process))})

    def __enter__(self):
        ready = self.process.stdout.readline()
        assert ready == "ready\n", f"the engine did not start: {self.log.name}"
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()
        self.log.close()

    def kill(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def ask(self, prompts, salt=None, **more):
        self.send(prompts, salt, **more)
        return json.loads(self.process.stdout.readline())

    def send(self, prompts, salt=None, **more):
        lines = [ids if isinstance(ids, str) else {"ids": ids, "salt": salt, **more} for ids in prompts]
        self.process.stdin.write(json.dumps(lines) + "\n")
        self.process.stdin.flush()


def prompts_of(count, seed=1, tokens=None):
    """Words of the licence in another order each time; a few tokens more than whole blocks."""
    from transformers import AutoTokenizer
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    sentences = (pathlib.Path(__file__).parents[2] / "LICENSE").read_text().split("\n\n")
    numbers = random.Random(seed)
    prompts = []
    for _ in range(count):
        text = " ".join(numbers.sample(sentences, len(sentences)) * 3)
        length = tokens or BLOCK * numbers.randrange(2, 12) + numbers.randrange(20, 100)
        prompts.append(tokenizer(text)["input_ids"][:length])
    return prompts


def blobs(folder):
    return [path for path in (pathlib.Path(folder) / "objects").rglob("*") if path.is_file()]


def used(folder):
    try:
        return sum(path.stat().st_size for path in blobs(folder))
    except FileNotFoundError:
        return used(folder)  # one were given up meanwhile


def settle(folder):
    """Saves end behind the engine's back."""
    before = -1
    while before != used(folder):
        before = used(folder)
        time.sleep(1)


def blocks_of(ids):
    return (len(ids) - 1) // BLOCK * BLOCK


@pytest.fixture(scope="module")
def computed(tmp_path_factory):
    """A folder, prompts that an engine computed into it, and what it answered: computed, and from its own cache."""
    folder = tmp_path_factory.mktemp("kv") / "store"
    folder.mkdir(mode=0o700)
    prompts = prompts_of(PROMPTS)
    with Engine(folder) as engine:
        first = engine.ask(prompts)
        settle(folder)
    with Engine(folder.with_name("plain"), offloading="none") as plain:
        plain.ask(prompts)
        own = plain.ask(prompts)
    assert [answer["cached"] for answer in own] == [blocks_of(ids) for ids in prompts]
    return folder, prompts, first, own


def same_texts(answers, wanted):
    return sum(a["text"] == b["text"] for a, b in zip(answers, wanted))


@pytest.mark.parametrize("load", ["async", "sync"])
def test_a_fresh_process_answers_from_the_store_as_from_its_own_cache(computed, load):
    folder, prompts, _, own = computed
    with Engine(folder, load=load) as engine:
        answers = engine.ask(prompts)
    assert [answer["cached"] for answer in answers] == [blocks_of(ids) for ids in prompts]
    same = same_texts(answers, own)
    print(f"{load}: {same} of {len(prompts)} texts are those of equal hits by vLLM's own cache")
    assert same == len(prompts)


@pytest.mark.parametrize("one_process", [False, True])
def test_vllms_own_cache_can_be_reset_after_what_was_computed_is_saved(tmp_path, one_process):
    folder = tmp_path / "store"
    folder.mkdir(mode=0o700)
    (prompt,) = prompts_of(1, seed=2, tokens=3 * BLOCK + 20)
    with Engine(folder, one_process=one_process) as engine:
        engine.ask([prompt], max_tokens=1)  # the step that saves is the last one
        until = time.monotonic() + 11  # a save holds its blocks for ten at most
        while not engine.ask(["can reset"])[0]:
            assert time.monotonic() < until
        settle(folder)
        assert used(folder) and engine.ask([prompt])[0]["cached"] == blocks_of(prompt), "it comes from the store"


def test_whoever_wants_the_logits_of_the_whole_prompt_has_it_computed(computed):
    folder, prompts, _, _ = computed
    with Engine(folder) as engine:
        (asked,), (plain,) = engine.ask(prompts[:1], prompt_logprobs=0), engine.ask(prompts[1:2])
    assert asked["cached"] == 0 and plain["cached"] == blocks_of(prompts[1])
    assert len(asked["prompt_logprobs"]) == len(prompts[0]) - 1
    assert all(-100 < value <= 0 for value in asked["prompt_logprobs"])


@pytest.mark.parametrize("load", ["async", "sync"])
def test_damaged_blocks_are_computed_anew(computed, load, tmp_path):
    _, prompts, first, own = computed
    folder = tmp_path / "store"
    folder.mkdir(mode=0o700)
    prompts = prompts[:4]
    with Engine(folder) as engine:
        engine.ask(prompts)
        settle(folder)
    for path in blobs(folder):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 0x40
        path.write_bytes(content)
    with Engine(folder, load=load) as engine:
        answers = engine.ask(prompts)
        again = engine.ask(prompts)
        settle(folder)
    sound = [{a["text"], b["text"]} for a, b in zip(first, own)]
    assert all(answer["text"] in texts for answer, texts in zip(answers, sound))
    assert all(answer["text"] in texts for answer, texts in zip(again, sound))
    with Engine(folder, load=load) as engine:
        assert same_texts(engine.ask(prompts), own) == len(prompts), "what was stored anew is sound"


def test_a_killed_engine_leaves_a_sound_store(computed, tmp_path):
    _, prompts, first, own = computed
    folder = tmp_path / "store"
    folder.mkdir(mode=0o700)
    with Engine(folder) as engine:
        engine.ask(prompts[:2])
        engine.send(prompts[2:])
        time.sleep(3)
        engine.kill()
    with Engine(folder) as engine:
        answers = engine.ask(prompts)
    assert answers[0]["cached"] == blocks_of(prompts[0]), "what was stored before is found"
    assert all(answer["text"] in (a["text"], b["text"]) for answer, a, b in zip(answers, first, own))


def test_a_full_disk_costs_no_answer(computed, tmp_path):
    _, prompts, first, own = computed
    folder = tmp_path / "store"
    folder.mkdir(mode=0o700)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m,mode=0700", "shale-test", folder],
                             capture_output=True).returncode == 0
    try:
        with Engine(folder, size="4GiB" if mounted else "16MiB") as engine:
            answers, again = engine.ask(prompts), engine.ask(prompts)
    finally:
        if mounted:
            subprocess.run(["umount", folder], check=True)
    assert same_texts(answers, first) == same_texts(again, own) == len(prompts)


@pytest.mark.parametrize("method, quality, times", [("int8", 0.99, 1.9), ("kivi4", 0.95, 3.1)])
def test_lossy_blocks_are_small_and_only_for_their_salt(computed, tmp_path, method, quality, times):
    exact, prompts, first, own = computed
    folder = tmp_path / "store"
    folder.mkdir(mode=0o700)
    options = {"method": method, "quality": quality, "floor": 0.9}
    with Engine(folder, **options) as engine:
        engine.ask(prompts)
        settle(folder)
    ratio = used(exact) / used(folder)
    print(f"{method}: {ratio:.2f} times as many tokens a byte")
    assert ratio >= times
    with Engine(folder, **options) as engine:
        lossy = engine.ask(prompts, salt=SALT)
        settle(folder)
        stored = used(folder)
        plain = engine.ask(prompts)
        print(f"{method}: {same_texts(lossy, own)} of {len(prompts)} texts are those of exact blocks")
        assert [answer["cached"] for answer in lossy] == [blocks_of(ids) for ids in prompts]
        assert [answer["cached"] for answer in plain] == [answer["cached"] for answer in first], "none unasked"
        assert same_texts(plain, first) == len(prompts)
        # A longer prompt on top of lossy blocks is not stored.
        longer = [ids + prompts[0][:2 * BLOCK] for ids in prompts[1:3]]
        engine.ask(longer, salt=SALT)
        settle(folder)
        assert used(folder) == stored


def test_the_secondary_tier_brings_chunks_to_a_fresh_process(computed, tmp_path):
    _, prompts, first, own = computed
    folder = tmp_path / "store"
    folder.mkdir(mode=0o700)
    options = {"spec_name": "ShaleOffloadingSpec", "spec_module_path": "shale.vllm_tier", "cpu_bytes_to_use": 1 << 30,
               "secondary_tiers": [{"type": "ShaleTier", "module_path": "shale.vllm_tier",
                                    "tiers": f"file://{folder}?size=4GiB"}]}
    with Engine(folder, offloading=options) as engine:
        engine.ask(prompts)
        settle(folder)
    with Engine(folder, offloading=options) as engine:
        answers = engine.ask(prompts)
    print(f"secondary tier: {sum(answer['cached'] for answer in answers)} tokens found")
    assert [answer["cached"] for answer in answers] == [blocks_of(ids) for ids in prompts]
    assert same_texts(answers, own) == len(prompts)
