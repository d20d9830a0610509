"""A program that reads its question and never answers."""

import signal

signal.pause()
