"""What another engine's configuration may say about the store behind it."""

import dataclasses
import difflib
import logging
import sqlite3

import numpy as np

from . import _shale

_NOT_OFFERED = ("none", "layered2", "cachegen")  # is `full`; a part of `layered`; needs tables made of the model
_SIZES = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


@dataclasses.dataclass
class Options:
    """Given as a dictionary; docs/guides/vllm.md says what each does."""

    tiers: str = ""
    load: str = "async"
    model: str = ""
    method: str = "full"
    quality: float = None
    profile: str = ""
    floor: float = None
    lossy_salt: str = "shale-lossy"
    tenant: str = ""
    staging: str = "256MiB"
    load_timeout_s: float = 30.0

    @classmethod
    def parse(cls, given):
        """Of a dictionary; a ValueError says what is wrong with it."""
        known = [field.name for field in dataclasses.fields(cls)]
        for name in given:
            if name not in known:
                raise ValueError(_unknown(name, known))
        options = cls(**given)
        options._check()
        return options

    def _check(self):
        if isinstance(self.tiers, (list, tuple)):
            self.tiers = ",".join(self.tiers)
        _refuse_unless(isinstance(self.tiers, str) and self.tiers, "tiers", self.tiers,
                       "URLs of tiers, fast to slow, such as file:///var/kv?size=100GiB")
        _refuse_unless(self.load in ("async", "sync"), "load", self.load, "async or sync")
        methods = ["full", *(name for name in _shale.quantizers() if name not in _NOT_OFFERED)]
        _refuse_unless(self.method in methods, "method", self.method,
                       f"one that keeps every token: {', '.join(methods)}")
        for name in ("quality", "floor"):
            value = getattr(self, name)
            _refuse_unless(value is None or (isinstance(value, (int, float)) and 0 <= value <= 1), name, value,
                           "a number from 0 to 1")
        _refuse_unless(isinstance(self.load_timeout_s, (int, float)) and self.load_timeout_s > 0, "load_timeout_s",
                       self.load_timeout_s, "seconds above 0")
        for name in ("model", "tenant", "profile", "lossy_salt"):
            _refuse_unless(isinstance(getattr(self, name), str), name, getattr(self, name), "a text, in quotes")
        self.staging_bytes = parse_size(self.staging)
        self._check_lossy()

    def _check_lossy(self):
        if self.method == "full":
            return
        _refuse_unless(self.floor is not None, "method", self.method, "a `floor`, too: blocks stored by it are for "
                       "requests that accept that quality alone")
        if self.quality is None and self.profile:
            self.quality = profiled_quality(self.profile, self.method)
        _refuse_unless(self.quality is not None, "method", self.method, "`quality`, or a `profile` that Shale's engine "
                       "measured, too (docs/guides/vllm.md)")


def check_method(method, head_dim):
    """ValueError where keys and values of so many channels cannot be stored by it."""
    if method == "full":
        return
    try:
        _shale._encode(method, *np.empty((2, 0, head_dim), np.uint16))
    except ValueError as error:
        raise ValueError(f"shale: method '{method}': {error}") from None


def warn_of_unknown(names, known):
    """Where an engine may pass options of its own along."""
    for name in sorted(names):
        logging.getLogger("shale").warning(_unknown(name, known))


def warn_of_trouble(store):
    """Of tiers that are not open yet: an engine starts without them."""
    for name, tier in store.stats()["tiers"].items():
        if tier["trouble"]:
            logging.getLogger("shale").warning("shale: tier %s: %s; nothing is stored there until that ends", name,
                                               tier["trouble"])


def _unknown(name, known):
    near = difflib.get_close_matches(name, known, 1)
    return f"shale: unknown option '{name}'" + (f", did you mean '{near[0]}'?" if near else
                                                f"; there are {', '.join(known)}")


def _refuse_unless(right, name, value, wanted):
    if not right:
        raise ValueError(f"shale: {name} {value!r}: give {wanted}")


def parse_size(text):
    """Bytes, of a number or of text like 256MiB."""
    for unit, size in _SIZES.items():
        if str(text).endswith(unit):
            text, factor = str(text)[:-len(unit)], size
            break
    else:
        factor = 1
    try:
        size = int(float(text) * factor)
    except (ValueError, OverflowError):
        size = -1
    _refuse_unless(size >= 0, "staging", text, "a size like 256MiB")
    return size


def profiled_quality(profile, method):
    """Mean agreement that Shale's engine measured of a method that keeps every token: of FILE or FILE#MODEL, a
    metadata store (docs/formats/metadata_store.md) and the model's name in it."""
    path, _, model = profile.partition("#")
    try:
        metadata_store = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            names = list({name for name, in metadata_store.execute("SELECT name FROM model") if model in ("", name)})
            _refuse_unless(len(names) == 1, "profile", profile, "FILE#MODEL with one of "
                           + ", ".join(name for name, in metadata_store.execute("SELECT name FROM model")))
            rows = metadata_store.execute("SELECT agreement FROM quality JOIN model USING (model) "
                                     "WHERE method = ? AND keep = 1 AND name = ?", (method, names[0])).fetchall()
        finally:
            metadata_store.close()
    except sqlite3.Error as error:
        raise ValueError(f"shale: profile '{path}': {error}") from None
    _refuse_unless(rows, "profile", profile, f"a metadata store in which `{method}` was measured of that model (by shale "
                   f"profile --profile-methods {method}, or an idle shale serve)")
    return sum(agreement for agreement, in rows) / len(rows)
