"""No decision reads a sentence: what is written for people is compared with nothing.

Causes, conditions, codes and groups travel as values (`CoveredBy`, `Finding.condition`, `Group`, an
enum's member); words are made from them where a person reads, and may be reworded there.
"""

from pathlib import Path

ROOT = Path(__file__).parent.parent
