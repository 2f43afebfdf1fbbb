"""Makes a GGUF file that libllama reads of a BERT sentence encoder's safetensors file and its vocabulary.

The bytes depend on the input alone, so that the file made can be held to a checksum.
"""

import json
import struct

UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9  # kinds of values in a GGUF file
NORMAL, CONTROL = 1, 3  # kinds of tokens
ALIGNMENT = 32

LAYER_TENSORS = {
    "attention.self.query": "attn_q", "attention.self.key": "attn_k", "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output", "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up", "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm"}
OTHER_TENSORS = {
    "embeddings.word_embeddings.weight": "token_embd.weight",
    "embeddings.position_embeddings.weight": "position_embd.weight",
    "embeddings.token_type_embeddings.weight": "token_types.weight",
    "embeddings.LayerNorm.weight": "token_embd_norm.weight", "embeddings.LayerNorm.bias": "token_embd_norm.bias"}


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def entry(key, kind, value):
    return text(key) + struct.pack("<I", kind) + value


def array(kind, values):
    return struct.pack("<IQ", kind, len(values)) + b"".join(values)


def token_in_file(token, kind):
    """As libllama's WordPiece wants it: what begins a word is marked, not what goes on."""
    if kind == CONTROL:
        return token
    return token[2:] if token.startswith("##") else "\u2581" + token


def tensor_name(name, layers):
    if name in OTHER_TENSORS:
        return OTHER_TENSORS[name]
    for layer in range(layers):
        prefix = f"encoder.layer.{layer}."
        if name.startswith(prefix):
            part, _, suffix = name.removeprefix(prefix).rpartition(".")
            if part in LAYER_TENSORS:
                return f"blk.{layer}.{LAYER_TENSORS[part]}.{suffix}"
    return None  # position ids, the pooler: not used


def convert(weights, vocabulary, config, name):
    """The file's bytes. `weights`: a safetensors file's; `vocabulary`: a token a line; `config`: its config.json's."""
    config = json.loads(config)
    tokens = vocabulary.decode().splitlines()
    kinds = [CONTROL if token in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]") else NORMAL for token in tokens]
    number = lambda value: struct.pack("<I", value)
    values = [
        entry("general.architecture", STRING, text("bert")),
        entry("general.name", STRING, text(name)),
        entry("bert.block_count", UINT32, number(config["num_hidden_layers"])),
        entry("bert.context_length", UINT32, number(config["max_position_embeddings"])),
        entry("bert.embedding_length", UINT32, number(config["hidden_size"])),
        entry("bert.feed_forward_length", UINT32, number(config["intermediate_size"])),
        entry("bert.attention.head_count", UINT32, number(config["num_attention_heads"])),
        entry("bert.attention.layer_norm_epsilon", FLOAT32, struct.pack("<f", config["layer_norm_eps"])),
        entry("bert.attention.causal", BOOL, b"\0"),
        entry("bert.pooling_type", UINT32, number(1)),  # mean
        entry("tokenizer.ggml.model", STRING, text("bert")),
        entry("tokenizer.ggml.token_type_count", UINT32, number(config["type_vocab_size"])),
        entry("tokenizer.ggml.tokens", ARRAY,
              array(STRING, [text(token_in_file(*pair)) for pair in zip(tokens, kinds)])),
        entry("tokenizer.ggml.token_type", ARRAY, array(INT32, [struct.pack("<i", kind) for kind in kinds])),
    ]
    for role, token in (("bos", "[CLS]"), ("cls", "[CLS]"), ("eos", "[SEP]"), ("seperator", "[SEP]"),
                        ("unknown", "[UNK]"), ("padding", "[PAD]"), ("mask", "[MASK]")):
        values.append(entry(f"tokenizer.ggml.{role}_token_id", UINT32, number(tokens.index(token))))

    header_bytes = struct.unpack_from("<Q", weights)[0]
    table = json.loads(weights[8:8 + header_bytes])
    infos, data = b"", bytearray()
    count = 0
    for source, info in sorted(table.items()):
        target = source != "__metadata__" and tensor_name(source, config["num_hidden_layers"])
        if not target:
            continue
        if info["dtype"] != "F32":
            raise ValueError(f"tensor {source} is {info['dtype']}, not F32")
        begin, end = (8 + header_bytes + offset for offset in info["data_offsets"])
        data += b"\0" * (-len(data) % ALIGNMENT)
        shape = info["shape"][::-1]
        infos += text(target) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, len(data))
        data += weights[begin:end]
        count += 1
    head = b"GGUF" + struct.pack("<IQQ", 3, count, len(values)) + b"".join(values) + infos
    return head + b"\0" * (-len(head) % ALIGNMENT) + bytes(data)
