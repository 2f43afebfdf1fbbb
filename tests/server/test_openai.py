"""The official client, unmodified, against `shale serve`: $SHALE_PROGRAM with the model smollm2-135m."""

import concurrent.futures
import json
import os
import pathlib
import re
import signal
import subprocess
import threading
import time
import urllib.request

import openai
import pytest

KEY = "a key"
RULES = " ".join(f"Rule {n}: answer question {n} briefly and say nothing that is not asked." for n in range(12))


def model_file():
    return pathlib.Path(os.environ.get("SHALE_MODEL_DIR", "")) / "smollm2-135m.gguf"


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    if not model_file().is_file():
        pytest.skip(f"there is no {model_file()}: set SHALE_MODEL_DIR")
    home = tmp_path_factory.mktemp("home")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SHALE_", "XDG_"))}
    environment |= {"HOME": str(home), "SHALE_API_KEY": KEY, "SHALE_WEIGHTS": "file", "SHALE_PROFILE": "never",
                    "SHALE_MAX_TOKENS": "64"}
    command = [os.environ["SHALE_PROGRAM"], "serve", "--model", str(model_file()), "--port", "0", "--json"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    yield json.loads(server.stdout.readline())["url"]
    server.send_signal(signal.SIGTERM)
    assert server.wait(timeout=120) == 0
    assert any((home / ".cache/shale/kv").rglob("*")), "nothing was stored"


@pytest.fixture(scope="module")
def client(url):
    return openai.OpenAI(base_url=url + "/v1", api_key=KEY, max_retries=0, timeout=120)


@pytest.fixture(scope="module")
def model(client):
    return client.models.list().data[0].id


def chat(question, rules=RULES):
    return [{"role": "system", "content": rules}, {"role": "user", "content": question}]


def metric(url, name):
    request = urllib.request.Request(url + "/metrics", headers={"Authorization": "Bearer " + KEY})
    text = urllib.request.urlopen(request).read().decode()
    return float(re.search(rf"^{re.escape(name)}[^ ]* (\S+)$", text, re.M).group(1))


def test_lists_its_model(client, model):
    assert model == "smollm2-135m"
    assert client.models.retrieve(model).object == "model"


def test_completes(client, model):
    answer = client.completions.create(model=model, prompt="The capital of France is", max_tokens=8, temperature=0)
    assert "Paris" in answer.choices[0].text
    assert answer.usage.completion_tokens == 8
    assert answer.choices[0].finish_reason == "length"


def test_answers_as_the_readme_shows(url, capsys):
    readme = pathlib.Path(__file__).resolve().parents[2] / "README.md"
    code = re.search(r"^```python\n(import openai\n.*?)^```$", readme.read_text(), re.M | re.S).group(1)
    exec(code.replace("http://127.0.0.1:8000", url).replace('"none"', repr(KEY)), {})
    assert "cached_tokens" in capsys.readouterr().out


def test_streams_what_it_says_at_once(client, model):
    asked = dict(model=model, messages=chat("Name a rock."), max_tokens=12, temperature=0)
    whole = client.chat.completions.create(**asked)
    parts = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    assert parts[0].choices[0].delta.role == "assistant"
    streamed = "".join(part.choices[0].delta.content or "" for part in parts if part.choices)
    assert streamed == whole.choices[0].message.content
    assert parts[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_tells_log_probabilities(client, model):
    asked = dict(model=model, messages=chat("Name a rock."), max_tokens=8, temperature=0, logprobs=True, top_logprobs=2)
    whole = client.chat.completions.create(**asked)
    told = whole.choices[0].logprobs.content
    assert len(told) == whole.usage.completion_tokens
    assert all(token.logprob == token.top_logprobs[0].logprob for token in told)
    parts = [part.choices[0].logprobs for part in client.chat.completions.create(**asked, stream=True)]
    assert [token.token for part in parts if part for token in part.content] == [token.token for token in told]
    completion = client.completions.create(model=model, prompt="The capital of France is", max_tokens=4, temperature=0,
                                           logprobs=2, extra_body={"return_token_ids": True}).choices[0]
    assert "".join(completion.logprobs.tokens) == completion.text
    assert len(completion.token_ids) == len(completion.logprobs.token_logprobs) == 4


def test_scores_texts(client, model):
    def scored(prompt):
        told = client.completions.create(model=model, prompt=prompt, max_tokens=0, echo=True, logprobs=1).choices[0]
        assert told.text == "".join(told.logprobs.tokens) == prompt
        assert told.logprobs.token_logprobs[0] is None
        return sum(told.logprobs.token_logprobs[1:])
    assert scored("The capital of France is Paris") > scored("The capital of France is Oslo")


def test_answers_several_prompts_and_choices(client, model):
    prompts = ["The capital of France is", "One two three one two three one two"]
    asked = dict(model=model, max_tokens=8, temperature=0, extra_body={"ignore_eos": True})
    answer = client.completions.create(**asked, prompt=prompts, n=2)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert all("Paris" in choice.text for choice in answer.choices[:2])
    alone = [client.completions.create(**asked, prompt=prompt) for prompt in prompts]
    assert answer.usage.prompt_tokens == sum(each.usage.prompt_tokens for each in alone)
    assert answer.usage.completion_tokens == 4 * 8


def test_streams_several_choices(client, model):
    said = {index: "" for index in range(3)}
    for part in client.chat.completions.create(model=model, messages=chat("Name a rock."), max_tokens=12, temperature=1,
                                               seed=5, n=3, stream=True, stream_options={"include_usage": True},
                                               extra_body={"ignore_eos": True}):
        for choice in part.choices:
            said[choice.index] += choice.delta.content or ""
    assert part.usage.completion_tokens == 3 * 12
    assert len(set(said.values())) == 3


def test_penalties_keep_an_answer_from_repeating_itself(client, model):
    asked = dict(model=model, prompt="one two three one two three one two", max_tokens=24, temperature=0,
                 extra_body={"return_token_ids": True, "ignore_eos": True})
    plain = client.completions.create(**asked).choices[0].token_ids
    penalised = client.completions.create(**asked, frequency_penalty=2, presence_penalty=2).choices[0].token_ids
    assert len(set(penalised)) > len(set(plain))


def test_the_next_turn_finds_the_last(client, model):
    messages = chat("Name a stone.")
    first = client.chat.completions.create(model=model, messages=messages, max_tokens=16, temperature=1, seed=5)
    messages += [first.choices[0].message.to_dict(), {"role": "user", "content": "And another?"}]
    second = client.chat.completions.create(model=model, messages=messages, max_tokens=4, temperature=0)
    tokens = first.usage.prompt_tokens + first.usage.completion_tokens
    assert second.usage.prompt_tokens_details.cached_tokens >= tokens - 2
    assert second.usage.prompt_tokens_details.lossy is False
    assert sum(second.usage.prompt_tokens_details.cached_from.values()) == (
        second.usage.prompt_tokens_details.cached_tokens)


def test_concurrent_chats_share_their_prefix(client, model):
    rules = RULES + " Speak like a pirate."
    begun = threading.Event()

    def ask(question, first):
        if not first:
            begun.wait(60)
        stream = client.chat.completions.create(model=model, messages=chat(question, rules), max_tokens=24,
                                                temperature=0, stream=True, stream_options={"include_usage": True})
        for part in stream:
            begun.set()
        return part.usage

    with concurrent.futures.ThreadPoolExecutor() as pool:
        one = pool.submit(ask, "What is granite?", True)
        other = pool.submit(ask, "What is chalk?", False)
    assert one.result().prompt_tokens_details.cached_tokens > 0  # of the rules that both tests share
    assert other.result().prompt_tokens_details.cached_tokens > 0.9 * other.result().prompt_tokens


def test_a_stream_that_is_closed_is_cancelled(client, model, url):
    cancelled = metric(url, 'vllm:request_success_total{model_name="smollm2-135m",finished_reason="abort"')
    stream = client.chat.completions.create(model=model, messages=chat("Count to a million."), max_tokens=4000,
                                            temperature=0, stream=True)
    next(iter(stream))
    stream.close()
    for _ in range(600):
        now = metric(url, 'vllm:request_success_total{model_name="smollm2-135m",finished_reason="abort"')
        held = metric(url, 'shale_pool_bytes{model_name="smollm2-135m",state="held"')
        if now == cancelled + 1 and held == 0:
            return
        time.sleep(0.1)
    pytest.fail(f"{now - cancelled} cancelled, {held} bytes held")


def test_a_method_is_lossy_and_exact_is_not(client, model):
    asked = dict(model=model, messages=chat("Name a mountain."), max_tokens=4, temperature=0)
    lossy = client.chat.completions.create(**asked, extra_body={"method": "knorm+int8", "keep": 0.5})
    assert lossy.usage.prompt_tokens_details.lossy is True
    exact = client.chat.completions.create(**asked, extra_body={"exact": True})
    assert exact.usage.prompt_tokens_details.lossy is False


def test_errors_are_the_clients_exceptions(client, model, url):
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="gpt-9", messages=chat("?"))
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=model, messages=chat("?"), n=0)
    assert caught.value.param == "n"
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=model, messages=chat("x " * 20_000))
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=url + "/v1", api_key="another", max_retries=0).models.list()
