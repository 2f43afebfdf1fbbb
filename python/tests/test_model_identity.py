"""What names models and adapters."""

import json
import types

import pytest
from shale.model_identity import identity, named_weights, stamps, weights_identity


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


def name_of(folder, max_model_len, **configuration):
    """Of a model as vLLM describes it."""
    text = types.SimpleNamespace(to_json_string=lambda use_diff: json.dumps(configuration))
    return identity(types.SimpleNamespace(model=str(folder), hf_text_config=text, dtype="bfloat16", quantization=None,
                                          max_model_len=max_model_len))


LONG_ROPE = {"rope_type": "longrope", "original_max_position_embeddings": 4096, "short_factor": [1], "long_factor": [2]}


@pytest.mark.parametrize("configuration, names", [
    ({"rope_parameters": {"rope_type": "default"}}, 1),
    ({"rope_parameters": LONG_ROPE}, 2),
    ({"rope_parameters": {"full_attention": LONG_ROPE}}, 2),
    ({"rope_scaling": {"type": "su"}, "original_max_position_embeddings": 4096}, 2),
])
def test_the_length_that_chooses_how_keys_are_rotated_is_part_of_the_name(tmp_path, configuration, names):
    (tmp_path / "model.bin").write_bytes(b"weights")
    assert len({name_of(tmp_path, length, **configuration) for length in (2048, 4096, 4097, 32768)}) == names
    (tmp_path / "config.json").write_text(json.dumps({"text_config": configuration}))
    if names == 1:
        assert named_weights(tmp_path, refuse_long_rope=True) == named_weights(tmp_path)
    else:
        with pytest.raises(ValueError, match="max-model-len"):
            named_weights(tmp_path, refuse_long_rope=True)
