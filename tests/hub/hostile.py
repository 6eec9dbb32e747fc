"""Bodies that nobody should send, each made from a seed: whoever takes them answers 4xx or 204."""

import gzip
import random
from collections.abc import Callable
from dataclasses import dataclass, field

GOOD = "gpu,cluster=test,model=H100,node=hostile,uuid=GPU-1 up=1i,power_watts=300.5 1769860800"


@dataclass(frozen=True, slots=True)
class Hostile:
    """A body with its headers; `kind` says what is wrong with it, `harmless` that nothing may be."""

    kind: str
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)
    query: str = "precision=s"
    harmless: bool = False


def hostile(seed: int) -> Hostile:
    """One body; the same for the same seed."""
    chance = random.Random(seed)
    return chance.choice(_MAKERS)(chance)


def _flipped(chance: random.Random) -> Hostile:
    """Good lines with some bytes changed; some changes leave them good."""
    body = bytearray("\n".join([GOOD] * chance.randint(1, 40)).encode())
    for _ in range(chance.randint(1, 20)):
        body[chance.randrange(len(body))] = chance.randrange(256)
    return Hostile("flipped bytes", bytes(body), harmless=True)


def _noise(chance: random.Random) -> Hostile:
    return Hostile("noise", b"\x01" + chance.randbytes(chance.randint(1, 50_000)))


def _tokens(chance: random.Random) -> Hostile:
    """What lines are made of, in any order."""
    pieces = [
        *("gpu", "node", ",", "=", " ", "\n", "\\", '"', "up=1i", "1", "-", "#", "\r\n", "\t", "i"),
        *("9" * 400, "1e999", "0x10", "NaN", "t", "\\ ", "\\,", '\\"', "a" * 3000, "Ω"),
    ]
    text = "".join(chance.choice(pieces) for _ in range(chance.randint(1, 400)))
    return Hostile("tokens", f"{text}\n!".encode(), harmless=True)


def _bad_gzip(chance: random.Random) -> Hostile:
    packed = bytearray(gzip.compress(GOOD.encode() * 50, mtime=0))
    if chance.random() < 0.5:
        del packed[chance.randint(1, len(packed) - 1) :]
    else:
        packed[chance.randint(10, len(packed) - 9)] ^= 0xFF
    return Hostile("bad gzip", bytes(packed), {"Content-Encoding": "gzip"})


def _bomb(chance: random.Random) -> Hostile:
    row = chance.choice([b"\n", b"\0", GOOD.encode() + b"\n"])
    size = chance.randint(17, 60) * 1024 * 1024
    packed = gzip.compress(row * (size // len(row)), 9, mtime=0)
    return Hostile("bomb", packed, {"Content-Encoding": "gzip"})


def _members(chance: random.Random) -> Hostile:
    packed = gzip.compress(b"", mtime=0) * chance.randint(101, 5000)
    return Hostile("members", packed, {"Content-Encoding": "gzip"})


def _not_utf8(chance: random.Random) -> Hostile:
    bad = chance.choice([b"\x80", b"\xff\xfe", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf8\x88\x80"])
    rows = [GOOD.encode().replace(b"hostile", b"n" + bad), b'gpu,node=n l="' + bad + b'" 5']
    return Hostile("not UTF-8", b"\n".join(chance.choice(rows) for _ in range(20)))


def _long_line(chance: random.Random) -> Hostile:
    size = chance.choice([70_000, 1_000_000, 10_000_000])
    row = chance.choice(["gpu,node={} up=1i 5", 'gpu,node=n up="{} 5', "gpu,node=n {}=1 5", "{}"])
    return Hostile("long line", row.format("x" * size).encode())


def _nuls(chance: random.Random) -> Hostile:
    body = GOOD.encode().replace(b"hostile", b"h\0") + b"\0" * chance.randint(1, 1000)
    return Hostile("NULs", body)


def _times(chance: random.Random) -> Hostile:
    time = chance.choice(
        ["-1", "-9223372036854775808", "99999999999999", "9223372036854775807", "1" * 30, "--5"]
    )
    rows = [f"{GOOD.rpartition(' ')[0]} {time}"] * chance.randint(1, 40)
    return Hostile("times", "\n".join(rows).encode())


def _types(chance: random.Random) -> Hostile:
    value = chance.choice(['"text"', "t", "1.5", "1e30", "18446744073709551615u", "nan", "-inf"])
    rows = [f"gpu,node=hostile up={value} 5"] * chance.randint(1, 40)
    return Hostile("types", "\n".join(rows).encode())


def _quotes(chance: random.Random) -> Hostile:
    body = '"' * chance.randint(1, 3000) + "\n" + 'gpu s="\n' * chance.randint(1, 3000)
    return Hostile("quotes", body.encode())


def _many_fields(chance: random.Random) -> Hostile:
    fields = ",".join(f"f{i}=1" for i in range(chance.randint(3000, 20_000)))
    return Hostile("many fields", f"gpu,node=hostile {fields} 5".encode(), harmless=True)


def _many_tags(chance: random.Random) -> Hostile:
    tags = ",".join(f"t{i}=1" for i in range(chance.randint(65, 5000)))
    return Hostile("many tags", f"gpu,{tags} up=1i 5".encode())


def _many_lines(chance: random.Random) -> Hostile:
    row = chance.choice(["x", "a b=1", "gpu up=1i 5", "#", ""])
    return Hostile("many lines", f"{row}\n".encode() * chance.choice([50_001, 1_000_000]))


def _dense_lines(chance: random.Random) -> Hostile:
    row = chance.choice(["x", "a b=c", "gpu up=x 5", 'gpu up="'])
    return Hostile("dense lines", f"{row}\n".encode() * chance.randint(100, 5000))


def _headers(chance: random.Random) -> Hostile:
    headers = {
        "Gpuvigil-Cluster": "test",
        "Gpuvigil-Node": "hostile",
        "Gpuvigil-Boot": "b",
        "Gpuvigil-Lane": "live",
        "Gpuvigil-Sequence": "1",
    }
    wrong = ["0", "-1", "1e3", "9" * 5000, "", "²", "0x1"]
    key = chance.choice(["Gpuvigil-Sequence", "Gpuvigil-Lane"])
    headers[key] = chance.choice(wrong).encode().decode("latin-1")
    return Hostile("headers", GOOD.encode(), headers)


def _asked(chance: random.Random) -> Hostile:
    query = chance.choice(
        ["precision=h", "precision=%00", "bucket=x", "precision=", "bucket=%ff", "bucket=" * 99]
    )
    return Hostile("query", GOOD.encode(), query=query)


def _encoding(chance: random.Random) -> Hostile:
    coding = chance.choice(["br", "gzip, gzip", "zstd", "x" * 1000])
    return Hostile("encoding", GOOD.encode(), {"Content-Encoding": coding})


_MAKERS: tuple[Callable[[random.Random], Hostile], ...] = (
    *(_flipped, _flipped, _noise, _tokens, _tokens, _bad_gzip, _bomb, _members, _not_utf8),
    *(_long_line, _nuls, _times, _types, _quotes, _many_fields, _many_tags, _headers, _asked),
    *(_many_lines, _dense_lines),
    _encoding,
)
