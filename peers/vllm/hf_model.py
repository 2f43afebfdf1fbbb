"""Makes a Hugging Face folder, in bf16, of a GGUF file: hf_model.py FILE.gguf FOLDER."""

import pathlib
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

source, folder = pathlib.Path(sys.argv[1]), sys.argv[2]
named = {"gguf_file": source.name}
model = AutoModelForCausalLM.from_pretrained(source.parent, **named, dtype=torch.bfloat16,
                                             quantization_config=GgufConfig(dequantize=True))
if hasattr(model.config, "quantization_config"):
    del model.config.quantization_config  # the weights are plain now
model.save_pretrained(folder)
AutoTokenizer.from_pretrained(source.parent, **named).save_pretrained(folder)
