"""The small pixel game with one bit of one frame of one episode flipped."""

import numpy as np
from numpy.typing import NDArray

from tests.support.pixel_game import Catch


class Flipped(Catch):
    """Flips one bit of one of its frames."""

    _seen = 0

    def _draw(self) -> NDArray[np.uint8]:
        self._seen += 1
        screen = super()._draw()
        screen[40, 40] ^= self._seen == 100
        return screen
