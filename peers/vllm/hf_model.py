"""Makes a Hugging Face folder, in bf16, of a GGUF file: hf_model.py FILE.gguf FOLDER. Works beside FOLDER and renames, so
that FOLDER is whole or absent."""

import pathlib
import shutil
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

source, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
partial = folder.with_name(folder.name + ".partial")
shutil.rmtree(partial, ignore_errors=True)  # of a run that was stopped
named = {"gguf_file": source.name}
model = AutoModelForCausalLM.from_pretrained(source.parent, **named, dtype=torch.bfloat16,
                                             quantization_config=GgufConfig(dequantize=True))
if hasattr(model.config, "quantization_config"):
    del model.config.quantization_config  # the weights are plain now
model.save_pretrained(partial)
AutoTokenizer.from_pretrained(source.parent, **named).save_pretrained(partial)
shutil.rmtree(folder, ignore_errors=True)
partial.rename(folder)
