"""The words of a PDF as WeasyPrint writes it: glyph numbers, and tables that say what they mean."""

import re
import zlib
from collections.abc import Iterator

_OBJECT = re.compile(rb"(\d+) 0 obj\s*(.*?)endobj", re.DOTALL)
_SHOWN = re.compile(rb"/(\w+) [\d.]+ Tf|(\[[^\]]*\]) ?TJ|(BT)")
_GLYPHS = re.compile(rb"<([0-9a-fA-F]+)>")


def pages(pdf: bytes) -> tuple[str, ...]:
    """The text of each page, runs of it joined without blanks."""
    objects = dict(_objects(pdf))
    fonts = _fonts(objects)
    found = []
    for body in objects.values():
        contents = re.search(rb"/Contents (\d+) 0 R", body)
        if contents and b"/Page" in body:
            found.append(_text(_inflated(objects[int(contents.group(1))]), fonts))
    return tuple(found)


def _objects(pdf: bytes) -> Iterator[tuple[int, bytes]]:
    for number, body in _OBJECT.findall(pdf):
        yield int(number), body
        if b"/ObjStm" in body:
            inner = _inflated(body)
            first = int(re.search(rb"/First (\d+)", body)[1])  # type: ignore[index]
            numbers = [int(one) for one in inner[:first].split()]
            starts = [*numbers[1::2], len(inner)]
            for place, name in enumerate(numbers[::2]):
                yield name, inner[first + starts[place] : first + starts[place + 1]]


def _inflated(body: bytes) -> bytes:
    data = body.split(b"stream", 1)[1].lstrip(b"\r\n").rsplit(b"endstream", 1)[0]
    return zlib.decompress(data) if b"/FlateDecode" in body else data


def _fonts(objects: dict[int, bytes]) -> dict[bytes, dict[int, str]]:
    """By resource name, what each glyph number means."""
    found = {}
    for body in objects.values():
        for name, number in re.findall(rb"/(\w+) (\d+) 0 R", body):
            font = objects.get(int(number), b"")
            meaning = re.search(rb"/ToUnicode (\d+) 0 R", font)
            if meaning:
                found[name] = _meanings(_inflated(objects[int(meaning.group(1))]))
    return found


def _meanings(table: bytes) -> dict[int, str]:
    pairs = re.findall(rb"<([0-9a-fA-F]{4})>\s*<([0-9a-fA-F]+)>", table)
    return {
        int(glyph, 16): bytes.fromhex(text.decode()).decode("utf-16-be") for glyph, text in pairs
    }


def _text(content: bytes, fonts: dict[bytes, dict[int, str]]) -> str:
    words, font = [], dict[int, str]()
    for name, shown, begins in _SHOWN.findall(content):
        if name:
            font = fonts.get(name, {})
        elif begins:
            words.append("\n")
        for run in _GLYPHS.findall(shown):
            glyphs = (int(run[i : i + 4], 16) for i in range(0, len(run), 4))
            words += [font.get(glyph, "?") for glyph in glyphs]
    return "".join(words)
