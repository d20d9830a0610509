"""Video files of H.264 in MP4, by PyAV, in colors that every player shows."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

ENCODER = "libx264"
_BT709 = 1
_LIMITED = 1


class H264File:
    """A video that is written picture by picture."""

    def __init__(self, out: BinaryIO, rate: int, quality: int) -> None:
        """Begin the file.

        Args:
            out: where it is written. FFmpeg's own file access crashes the process on a full disk (av 18.1).
            rate: pictures a second.
            quality: the rate factor of x264: 16 is nearly lossless, 23 small.

        Raises:
            ImportError: av is not installed.
        """
        import av

        self._av, self._rate = av, rate
        self._file = av.open(out, "w", format="mp4")
        options = {"crf": str(quality), "preset": "veryfast", "tune": "animation"}
        self._stream: Any = self._file.add_stream(ENCODER, rate=Fraction(rate), options=options)
        context: Any = self._stream.codec_context
        context.pix_fmt, context.thread_count = "yuv420p", 1
        context.colorspace = context.color_primaries = context.color_trc = _BT709
        context.color_range = _LIMITED
        self._pictures = 0

    def add(self, picture: NDArray[np.uint8]) -> None:
        """Append a picture uint8[h, w, 3], of even height and width, all of one size; it is copied."""
        from av.video.reformatter import ColorRange, Colorspace, Interpolation

        if not self._pictures:
            self._stream.height, self._stream.width = picture.shape[:2]
        # Two by two pixels share a color: that of one pixel of the game if the scale is even.
        frame = self._av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24").reformat(
            format="yuv420p",
            dst_colorspace=Colorspace.ITU709,
            dst_color_range=ColorRange.MPEG,
            interpolation=Interpolation.AREA,
        )
        frame.pts, frame.time_base = self._pictures, Fraction(1, self._rate)
        self._file.mux(self._stream.encode(frame))
        self._pictures += 1

    def finish(self) -> None:
        """Write the rest."""
        try:
            if self._pictures:
                self._file.mux(self._stream.encode(None))
        finally:
            self._file.close()
