"""What names models and adapters."""

import json
import pathlib
import types

import pytest
from shale.model_identity import Adapters, identity, named_weights, served_identity, stamps, weights_identity


def test_a_model_is_named_by_every_tensor(tmp_path):
    def write(name, changed=None):
        folder = tmp_path / name
        folder.mkdir()
        names = [f"layers.{n}.q_proj" for n in range(40)]
        header = {each: {"dtype": "F32", "shape": [1024], "data_offsets": [4096 * n, 4096 * (n + 1)]}
                  for n, each in enumerate(names)} | {"__metadata__": {"format": "pt"}}
        described = json.dumps(header).encode()
        data = bytearray(40 * 4096)
        if changed is not None:
            data[4096 * changed + 2000] = 1
        (folder / "model.safetensors").write_bytes(len(described).to_bytes(8, "little") + described + data)
        return weights_identity(folder)

    plain = write("plain")
    assert plain == write("same") and len({plain} | {write(f"layer{n}", n) for n in (0, 17, 39)}) == 4
    (tmp_path / "none").mkdir()
    with pytest.raises(ValueError, match="no weights"):
        weights_identity(tmp_path / "none")
    (tmp_path / "cut.safetensors").write_bytes(b"\xff" * 8)
    with pytest.raises(ValueError, match="no safetensors"):
        weights_identity(tmp_path / "cut.safetensors")

    configuration = tmp_path / "plain" / "config.json"
    names = {named_weights(tmp_path / "plain")}
    for theta in (10_000, 500_000):
        configuration.write_text(f'{{"rope_theta": {theta}}}')
        names.add(named_weights(tmp_path / "plain"))
    assert len(names) == 3, "the same weights, rotated in another way"
    before = stamps(tmp_path / "plain")
    assert before == stamps(tmp_path / "plain") and before != stamps(tmp_path / "same")
    configuration.write_text("{}")
    assert before != stamps(tmp_path / "plain") and stamps(tmp_path / "nowhere") == ()


def model_of(folder, max_model_len=4096, **configuration):
    """As vLLM describes it."""
    text = types.SimpleNamespace(to_json_string=lambda use_diff: json.dumps(configuration))
    return types.SimpleNamespace(model=str(folder), hf_text_config=text, dtype="bfloat16", quantization=None,
                                 max_model_len=max_model_len)


LONG_ROPE = {"rope_type": "longrope", "original_max_position_embeddings": 4096, "short_factor": [1], "long_factor": [2]}


@pytest.mark.parametrize("configuration, names", [
    ({"rope_parameters": {"rope_type": "default"}}, 1),
    ({"rope_parameters": LONG_ROPE}, 2),
    ({"rope_parameters": {"full_attention": LONG_ROPE}}, 2),
    ({"rope_scaling": {"type": "su"}, "original_max_position_embeddings": 4096}, 2),
])
def test_the_length_that_chooses_how_keys_are_rotated_is_part_of_the_name(tmp_path, configuration, names):
    (tmp_path / "model.bin").write_bytes(b"weights")
    assert len({identity(model_of(tmp_path, length, **configuration)) for length in (2048, 4096, 4097, 32768)}) == names
    (tmp_path / "config.json").write_text(json.dumps({"text_config": configuration}))
    if names == 1:
        assert named_weights(tmp_path, refuse_long_rope=True) == named_weights(tmp_path)
    else:
        with pytest.raises(ValueError, match="max-model-len"):
            named_weights(tmp_path, refuse_long_rope=True)


def test_what_drafts_is_part_of_the_name_where_its_layers_are_stored_too(tmp_path):
    for name in ("model", "one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.bin").write_bytes(name.encode())
    model = model_of(tmp_path / "model")

    def name(method=None, draft=None):
        drafting = method and types.SimpleNamespace(method=method, draft_model_config=draft)
        return served_identity(types.SimpleNamespace(model_config=model, speculative_config=drafting))

    one, two = (model_of(tmp_path / folder) for folder in ("one", "two"))
    assert name("eagle", one) == name("eagle", model_of(tmp_path / "one"))
    assert len({name(), name("eagle", one), name("eagle", two), name("eagle3", one), name("draft_model", one)}) == 5
    assert {name("ngram", model), name("suffix"), name("medusa", one)} == {name()}, "these have no layers in the blocks"


def test_an_adapter_whose_files_are_written_again_has_no_name_any_more(tmp_path):
    warnings = []
    adapters = Adapters(lambda text, *values: warnings.append(text % values))

    def name(folder, number):
        return adapters.name(types.SimpleNamespace(lora_name="x", lora_int_id=number, lora_path=str(tmp_path / folder)))

    def write(folder, weights):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "adapter_model.bin").write_bytes(weights)

    assert adapters.name(None) == b"" and name("one", 1) is None, "it has no weights yet"
    write("one", b"first")
    first = name("one", 1)
    assert len(first) == 32 and name("one", 1) == first and len(warnings) == 1
    write("two", b"second")
    second = name("two", 2)
    assert second not in (None, first)
    write("one", b"second, which vLLM need not have")
    assert name("one", 1) is None and name("one", 3) is None and name("two", 2) == second
    assert len(warnings) == 2 and "new path" in warnings[1]
    assert Adapters(warnings.append).name(types.SimpleNamespace(lora_name="x", lora_path=str(tmp_path / "one")))


def test_files_of_an_adapter_that_cannot_be_looked_at_cost_it_nothing(tmp_path, monkeypatch):
    adapters, lora = Adapters(pytest.fail), types.SimpleNamespace(lora_name="x", lora_path=str(tmp_path))
    (tmp_path / "adapter_model.bin").write_bytes(b"weights")
    (tmp_path / "README.md").symlink_to("gone")
    name = adapters.name(lora)
    assert len(name) == 32 and adapters.name(lora) == name

    listed = list(tmp_path.iterdir())
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(pathlib.Path, "iterdir", lambda folder: iter([*listed, folder / "removed just now"]))
        assert {name for name, _, _ in stamps(tmp_path)} == {"adapter_model.bin", "README.md", "removed just now"}

    def refused(folder):
        raise PermissionError(folder)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(pathlib.Path, "iterdir", refused)
        assert stamps(tmp_path) == ()
