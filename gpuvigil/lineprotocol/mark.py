"""A line's own time as one of its fields.

An engine that keeps every field for itself does not know which of them made one line. Lines that
go to one carry their time as a field, in Unix microseconds: it is there exactly where a line is,
its mean, least and greatest are those of lines, and a float holds it exactly until 2255.
"""

MARK = "at_microseconds"


def marked(content: bytes) -> bytes:
    """Lines that end in a time in nanoseconds, each with its mark; others stay as they are."""
    return b"\n".join(map(_marked, content.split(b"\n")))


def _marked(line: bytes) -> bytes:
    head, _, at = line.rpartition(b" ")
    if not at.isdigit():
        return line
    return b"%b,%b=%di %b" % (head, MARK.encode(), int(at) // 1000, at)
