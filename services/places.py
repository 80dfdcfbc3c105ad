"""How much the service takes on at once; what is beyond is refused at once."""

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from services.errors import UnavailableError

MAX_LABEL_REQUESTS = 64
_FIRST_GUESS_S = 5.0
_NEWEST_WEIGHT = 0.2


class Places:
    """A bounded number of requests that run or wait, and how soon one of them is free."""

    def __init__(
        self, num_places: int, num_parallel: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`num_parallel` of the `num_places` make progress side by side."""
        self._places = threading.BoundedSemaphore(num_places)
        self._num_parallel = num_parallel
        self._clock = clock
        self._mean_s = _FIRST_GUESS_S

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold a place.

        Raises:
            UnavailableError: none is free; it says when the next one should be.
        """
        if not self._places.acquire(blocking=False):
            wait_s = max(1, math.ceil(self._mean_s / self._num_parallel))
            raise UnavailableError("too many requests at once", retry_after_s=wait_s)
        start = self._clock()
        try:
            yield
        finally:
            self._mean_s += _NEWEST_WEIGHT * (self._clock() - start - self._mean_s)
            self._places.release()
