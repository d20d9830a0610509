"""Values, names and texts that a damaged or hostile file may hold."""

import json
import random
from typing import Any

MARKER = "fuzz_mark"
"""Module whose import leaves a mark: a file may not have it imported."""

NUMBERS = (
    *("0", "-0", "-1", "1", "2", "3.5", "-2.5", "1e-400", "1e308", "1e999", "-1e999", "NaN", "Infinity", "-Infinity"),
    *("9007199254740993", "4611686018427387904", "9223372036854775808", "-9223372036854775809"),
    *("18446744073709551616", "9" * 310, "-" + "9" * 310, "9" * 5_000, "0" * 3 + "1", "1_000", "0x10", "1e5"),
)
"""Numbers as JSON would spell them, and some that it would not."""

TEXTS = (
    *("", " ", ".", "..", "/", "a/b", "../../outside/victim.txt", "/etc/passwd", "__init__", "-", "con", "a" * 256),
    *("x" * 100_000, "\0", "a\0b", "a\nb", "\r\n", "\x1b[2J\x1b]0;mine\x07", "\x9b31m", "\u202egnp.exe", "\u2028"),
    *("\ud800", "\udfff\ud800", "\U0001f3ae", "e\u0301" * 50, "%s%n", "{0.__class__}", "<script>mine()</script>"),
    *(f"{MARKER}:factory", f"{MARKER}:Mine-v0", "os:abort", "posix:abort", "CartPole-v1"),
    "tests.support.pixel_game:factory",
    *("breakout", "pong", "Breakout", "nature", "small", "impala", "iqn", "__init__", "none", "True", "1"),
)
"""Texts that break a terminal, a page, a path or an import; and some that are right elsewhere."""

NAMES = (
    *(".", "..", "...", "a/b", "../x", "__init__", "__init__.py", "x" * 255, "x" * 256, "a\nb", "\x1b[2J", "\ud800"),
    *("weights-00000004.safetensors", "checkpoint-00000005.json", "best.safetensors", "-rf", "a b", "", "lock"),
)
"""Names of files, as one file may say of another."""


def odd_json(rng: random.Random) -> str:
    """Text in place of one JSON value; half a character in it is to be encoded with `surrogatepass`."""
    kind = rng.randrange(10)
    if kind < 3:
        return rng.choice(NUMBERS)
    if kind < 6:
        return json.dumps(rng.choice(TEXTS), ensure_ascii=rng.random() < 0.5)
    if kind == 6:
        return json.dumps(rng.choice(NAMES))
    if kind == 7:
        depth = rng.choice((40, 900, 100_000))
        opening, closing = rng.choice((("[", "]"), ('{"a":', "}")))
        return opening * depth + ("1" if opening != "[" else "") + closing * depth
    plain: list[Any] = [None, True, False, [], {}, [[]], [None], {"": {}}, {"a": 1}, [1] * 10_000, ["", 1, None]]
    return json.dumps(rng.choice(plain)) if kind == 8 else rng.choice(('{"a":1,"a":2}', "", "nul", "[1,", "'a'"))
