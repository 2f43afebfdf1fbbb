"""Names a model by what it is, not by where it lies, so that KV of other weights is never taken for its own."""

import hashlib
import pathlib

_WEIGHTS = (".safetensors", ".bin", ".pt", ".gguf")
_SAMPLE_BYTES, _SAMPLES = 1 << 16, 16


def identity(model_config):
    """Of vLLM's ModelConfig: weights, and what of its configuration and of vLLM's changes keys and values."""
    facts = [weights_identity(folder) if (folder := _folder(model_config)) else
             f"{model_config.model}@{model_config.revision}",
             model_config.hf_text_config.to_json_string(use_diff=False), str(model_config.dtype),
             str(model_config.quantization)]
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()


def _folder(model_config):
    """Where its files lie; None where that cannot be told."""
    path = pathlib.Path(model_config.model)
    if path.exists():
        return path
    from huggingface_hub import try_to_load_from_cache
    found = try_to_load_from_cache(model_config.model, "config.json", revision=model_config.revision)
    return pathlib.Path(found).parent if isinstance(found, str) else None


def weights_identity(path):
    """Of the weights in a folder, or of one file: their names, sizes, and samples of their bytes."""
    path = pathlib.Path(path)
    files = sorted(file for file in path.iterdir() if file.suffix in _WEIGHTS) if path.is_dir() else [path]
    digest = hashlib.sha256()
    for file in files:
        size = file.stat().st_size
        digest.update(f"{file.name} {size}\n".encode())
        with open(file, "rb") as weights:
            for sample in range(_SAMPLES):
                weights.seek(max(0, size - _SAMPLE_BYTES) * sample // (_SAMPLES - 1))
                digest.update(weights.read(_SAMPLE_BYTES))
    return digest.hexdigest()
