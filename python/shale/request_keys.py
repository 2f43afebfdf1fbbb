"""Under which keys the store has a request's blocks."""

import hashlib


class RequestKeys:
    """Gives those of all whole blocks so far, 32 bytes each, made once: of the engine's own hashes of them, which
    `hashes()` gives, and of what else tells them from others' blocks."""

    def __init__(self, hashes, of=b""):
        self._hashes, self._of = hashes, of
        self._known, self._keys = [], []  # hashes, and the keys made of them

    def __call__(self):
        hashes = self._hashes()
        # A session that goes on may have had its last ones replaced. A hash covers the blocks before it, too: where one
        # is still there, so are all before it.
        while self._known and self._known[-1:] != hashes[len(self._known) - 1:len(self._known)]:
            self._known.pop()
            self._keys.pop()
        new = hashes[len(self._known):]
        self._known += new
        self._keys += [self._key(block) for block in new]
        return self._keys

    def _key(self, block):
        return hashlib.sha256(block + self._of).digest() if self._of else block.ljust(32, b"\0")
