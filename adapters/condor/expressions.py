"""Evaluator of ClassAd expressions in this process. It contacts no daemon.

The library of ClassAds needs no child process: unlike HTCondor's client library, it opens no connection
and reads no configuration.
"""

from functools import lru_cache
from typing import Any


class ClassAdEvaluator:
    """An ``ExpressionEvaluator`` port with HTCondor's own library, classad2."""

    def __init__(self) -> None:
        import classad2

        self._classad = classad2
        self._parse_ad = lru_cache(maxsize=1024)(classad2.ClassAd)
        self._parse = lru_cache(maxsize=64)(classad2.ExprTree)

    def evaluate(self, text: str, my: str, target: str) -> object:
        """See :class:`hydrator.diagnostics.replay.expressions.ExpressionEvaluator`."""
        value: Any = self._parse(text).eval(self._parse_ad(my), self._parse_ad(target))
        return None if isinstance(value, self._classad.Value) else value
