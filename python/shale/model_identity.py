"""Names a model by what it is, not by where it lies, so that KV of other weights is never taken for its own."""

import hashlib
import json
import pathlib

_WEIGHTS = (".safetensors", ".bin", ".pt", ".gguf")
_SAMPLE_BYTES, _SAMPLES = 1 << 12, 256
_HEADER_BYTES_MAX = 100 << 20  # as safetensors has it
_DRAFT_WITHOUT_LAYERS = ("ngram", "ngram_gpu", "suffix", "medusa", "mlp_speculator")  # vLLM's methods that have none


def identity(model_config):
    """Of vLLM's ModelConfig: weights, and what of its configuration and of vLLM's changes keys and values."""
    configuration = json.loads(model_config.hf_text_config.to_json_string(use_diff=False))
    facts = [weights_identity(folder) if (folder := _folder(model_config)) else
             f"{model_config.model}@{model_config.revision}",
             _without_whereabouts(configuration), str(model_config.dtype), str(model_config.quantization)]
    facts += [f"beyond {length}: {model_config.max_model_len > length}" for length in _long_rope(configuration)]
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()


def served_identity(vllm_config):
    """Of all whose keys and values vLLM's blocks hold: the model, and what drafts for it with layers of its own."""
    model, drafting = vllm_config.model_config, vllm_config.speculative_config
    draft = drafting and drafting.draft_model_config
    if draft is None or draft is model or drafting.method in _DRAFT_WITHOUT_LAYERS:
        return identity(model)
    return f"{identity(model)}, {drafting.method} {identity(draft)}"


def _without_whereabouts(configuration):
    """All that it says of the model; neither where that lies nor who reads it."""
    return json.dumps({name: fact for name, fact in configuration.items()
                       if name not in ("_name_or_path", "transformers_version")}, sort_keys=True)


def _long_rope(configuration, length=0):
    """Of a model with LongRoPE: the lengths beyond which vLLM's `max_model_len` has it take the long factors, for short
    texts as well."""
    length = configuration.get("original_max_position_embeddings") or length
    own = [length] if configuration.get("rope_type", configuration.get("type")) in ("longrope", "su") else []
    parts = [part for part in configuration.values() if isinstance(part, dict)]
    return own + [each for part in parts for each in _long_rope(part, length)]


def named_weights(model, *, refuse_long_rope=False):
    """Of a model or an adapter at a path, or of the one revision that the Hugging Face cache has under a name: its
    weights, and what its folder says of how they are used. ValueError where that cannot be told: a name alone may come
    to mean other weights. `refuse_long_rope`: also where the longest text that vLLM serves decides how to use them."""
    model = model or "(without a name)"
    path = pathlib.Path(model)
    folders = [path] if path.exists() else _revisions(model)
    if len(folders) != 1:
        found = f"has {len(folders)} revisions in" if folders else "is neither a path nor in"
        raise ValueError(f"shale: '{model}' {found} the Hugging Face cache, so that its weights cannot be told from "
                         "others: say in `model` what names them, and give another name with others")
    configuration = folders[0] / "config.json"
    if refuse_long_rope and configuration.is_file() and _long_rope(json.loads(configuration.read_text())):
        raise ValueError(f"shale: '{model}' has LongRoPE, whose factors vLLM chooses by --max-model-len: say in "
                         "`model` what names it, and give another name with other factors")
    digest = hashlib.sha256(weights_identity(folders[0]).encode())
    for name in ("config.json", "adapter_config.json"):
        if (folders[0] / name).is_file():
            digest.update((folders[0] / name).read_bytes())
    return digest.hexdigest()


def stamps(path):
    """Of the files in a folder, or of one file: when each was written. They change where it is written again. Files
    that cannot be looked at, as links into nowhere, are there by name alone."""
    path = pathlib.Path(path)
    try:
        files = sorted(path.iterdir()) if path.is_dir() else [path] if path.exists() else []
    except OSError:
        files = []
    return tuple(_stamp(file) for file in files)


def _stamp(file):
    try:
        stat = file.stat()
    except OSError:  # among them a file that has gone since the folder was read
        return file.name, None, None
    return file.name, stat.st_mtime_ns, stat.st_size


class Adapters:
    """Names adapters by their weights, while an engine serves them: vLLM's hashes know name and path alone."""

    def __init__(self, warn):
        self._warn = warn
        self._names = {}  # by path and stamps of its files: what names its weights
        self._first = {}  # by path: its files' stamps when they were named; None once they were written again

    def name(self, lora):
        """Of a LoRARequest; empty without one. None where its weights are not to be found, or have been written again:
        vLLM may hold either in memory, and what either computed in its own cache. Nothing is then to be stored of it or
        looked up."""
        if lora is None:
            return b""
        path, now = lora.lora_path, stamps(lora.lora_path)
        if self._first.get(path, now) != now:
            if self._first[path] is not None:
                self._warn("KV of the adapter '%s' is neither stored nor looked up any more: %s has been written "
                           "again. Load changed weights from a new path", lora.lora_name, path)
            self._first[path] = None
            return None
        if (path, now) not in self._names:
            try:
                self._names[path, now] = bytes.fromhex(named_weights(path))
                self._first[path] = now
            except (ValueError, OSError) as error:
                self._names[path, now] = None
                self._warn("KV of the adapter '%s' is neither stored nor looked up: %s", lora.lora_name, error)
        return self._names[path, now]


def _revisions(model):
    try:
        from huggingface_hub import constants, file_download
        folder = pathlib.Path(constants.HF_HUB_CACHE, file_download.repo_folder_name(repo_id=model, repo_type="model"))
        return [path for path in (folder / "snapshots").iterdir() if any(file.suffix in _WEIGHTS for file in path.iterdir())]
    except (ImportError, OSError):
        return []


def _folder(model_config):
    """Where its files lie; None where that cannot be told."""
    path = pathlib.Path(model_config.model)
    if path.exists():
        return path
    from huggingface_hub import try_to_load_from_cache
    found = try_to_load_from_cache(model_config.model, "config.json", revision=model_config.revision)
    return pathlib.Path(found).parent if isinstance(found, str) else None


def weights_identity(path):
    """Of the weights in a folder, or of one file: their names, sizes, and samples of their bytes; of every tensor, where
    a file says where they lie. ValueError where there are none."""
    path = pathlib.Path(path)
    files = sorted(file for file in path.iterdir() if file.suffix in _WEIGHTS) if path.is_dir() else [path]
    if not files:
        raise ValueError(f"shale: there are no weights in {path} to name the model by: give `model`")
    digest = hashlib.sha256()
    for file in files:
        size = file.stat().st_size
        digest.update(f"{file.name} {size}\n".encode())
        with open(file, "rb") as weights:
            for place in _places(weights, size, file.suffix == ".safetensors"):
                weights.seek(place)
                digest.update(weights.read(_SAMPLE_BYTES))
    return digest.hexdigest()


def _places(weights, size, is_safetensors):
    """Where a file is sampled: each tensor's beginning, middle and end, or evenly."""
    if not is_safetensors:
        return [max(0, size - _SAMPLE_BYTES) * sample // (_SAMPLES - 1) for sample in range(_SAMPLES)]
    length = int.from_bytes(weights.read(8), "little")
    if length > min(size, _HEADER_BYTES_MAX):
        raise ValueError(f"shale: {weights.name} is no safetensors file")
    tensors = json.loads(weights.read(length))
    places = [0]
    for name, tensor in sorted(tensors.items()):
        if name != "__metadata__":
            begin, end = (8 + length + offset for offset in tensor["data_offsets"])
            places += [begin, (begin + end) // 2, max(begin, end - _SAMPLE_BYTES)]
    return places
