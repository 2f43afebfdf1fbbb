"""Saves of an engine's blocks, by the store's threads while the engine goes on."""

import dataclasses
import time

from .store import StoreError


@dataclasses.dataclass
class _InFlight:
    number: int
    save: object
    run: object  # what the store may still read; None once it does not
    until: float  # when it may read it no longer


class Saver:
    """Follows saves to their end, and gives those up that no tier takes. `failed(why)` is told of those that store
    nothing. One thread's."""

    HOLD_S = 10.0  # the longest that a save may keep blocks, or the copies of them

    def __init__(self, store, counted, failed, **options):
        self._store, self._counted, self._failed, self._options = store, counted, failed, options
        self._saves = []
        self._released, self._copied = [], []

    def add(self, number, keys, first, run):
        """Begins to save the run as keys[first:]."""
        try:
            save = self._store.save(keys, run.view, first_block=first, **self._options)
        except StoreError as error:
            self._failed(error)
            self.drop(number)
            return
        if run.copied:
            self._copied.append(number)
        self._saves.append(_InFlight(number, save, run, time.monotonic() + self.HOLD_S))

    def drop(self, number):
        """It was not begun."""
        self._released.append(number)

    def follow(self):
        self._saves = [each for each in self._saves if not self._ended(each)]

    def _ended(self, each):
        done = each.save.done  # before it is asked for what this implies
        if each.run and (done or each.save.released):
            self._release(each)
        if each.run and time.monotonic() > each.until:
            self._counted["saves_late"] += 1
            self._cancel(each)
        if not done:
            return False
        try:
            each.save.wait()
            self._counted["saves"] += 1
            self._counted["blocks_shared"] += each.save.shared_blocks
        except StoreError as error:
            self._failed(error)
        return True

    def _cancel(self, each):
        each.save.cancel()  # which lets go of what it reads
        if each.run:
            self._release(each)

    def _release(self, each):
        each.run = None
        self._released.append(each.number)

    @property
    def saving(self):
        """Whether any has not ended."""
        return bool(self._saves)

    def take_released(self):
        """Numbers of saves whose blocks may be used anew because they were copied, and of those that read neither
        blocks nor copies any more."""
        taken = self._copied, self._released
        self._copied, self._released = [], []
        return taken

    def take_over(self, closed):
        """What another let go of that is closed, and nobody was told of."""
        copied, released = closed.take_released()
        self._copied += copied
        self._released += released

    def close(self, patience_s):
        """Gives them the time to end."""
        until = time.monotonic() + patience_s
        while self._saves and time.monotonic() < until:
            self.follow()
            time.sleep(0.002)
        for each in self._saves:
            self._cancel(each)
        self._saves = []
