"""Scores of the same keys by Shale and by kvpress: pip install ./python kvpress."""

import kvpress
import numpy as np
import shale
import torch

keys = np.random.default_rng(0).standard_normal((3, 1000, 64), dtype=np.float32)  # KV heads, tokens, head dimension
for name, press in (("knorm", kvpress.KnormPress()), ("keydiff", kvpress.KeyDiffPress())):
    theirs = press.score(None, None, torch.from_numpy(keys)[None], None, None, {})[0].numpy()
    print(f"{name}: largest difference {np.abs(shale.score(name, keys) - theirs).max():.1e}")
