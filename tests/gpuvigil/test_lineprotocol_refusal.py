"""What servers say when they refuse lines, and what is made of it."""

import json

import pytest

from gpuvigil.lineprotocol.refusal import Meaning, in_short, meaning, refused_lines

# As InfluxDB 1.6.7, VictoriaMetrics 1.79.5 and vmauth 1.79.5 have said it.
PARSED_IN_PART = json.dumps(
    {
        "error": "partial write: unable to parse 'gpu,node=n': missing fields\n"
        "unable to parse 'xx': missing fields dropped=0"
    }
)
CONFLICT = json.dumps(
    {
        "error": 'partial write: field type conflict: input field "t" on measurement "gpu" is type'
        " float, already exists as type boolean dropped=2"
    }
)
NOTHING_PARSED = '{"error":"unable to parse \'gpu,node=n\': missing fields"}\n'
LONG_LINE = (
    'remoteAddr: "127.0.0.1:1"; requestURI: /api/v2/write?bucket=b; cannot read influx line'
    " protocol data: too long line: more than 262144 bytes\n"
)
VM_PATH = 'remoteAddr: "127.0.0.1:1"; requestURI: /x?a=b; unsupported path requested: "/x"\n'
VM_GZIP = (
    'remoteAddr: "127.0.0.1:1"; requestURI: /api/v2/write?bucket=b; cannot read gzipped influx'
    " line protocol data: gzip: invalid header\n"
)
VMAUTH_TOKEN = 'cannot find the provided auth token "Bearer secret-word" in config\n'
# By documentation, issues and sources: InfluxDB 2.7 and 2.0, InfluxDB 3, VictoriaMetrics 1.105 on.
INFLUX_2 = json.dumps(
    {
        "code": "unprocessable entity",
        "message": "failure writing points to database: partial write: points beyond retention"
        " policy dropped=24",
    }
)
INFLUX_2_PARSE = (
    '{"code":"invalid","message":"unable to parse \'a b\': missing fields\\nunable to parse"}'
)
INFLUX_3 = json.dumps(
    {
        "error": "partial write of line protocol occurred",
        "data": [
            {"original_line": "a b=x 1", "line_number": n, "error_message": "invalid column type"}
            for n in (2, 5, 9)
        ],
    }
)
INFLUX_3_LIMIT = '{"error":"Adding a new database would exceed limit of 5 databases"}'
VM_BATCH = 'cannot process influx line protocol data: incorrect influx line "a b=1 x": cannot parse'
PAGE = "<html><head><title>404 Not Found</title></head></html>"


@pytest.mark.parametrize(
    ("status", "said", "expected"),
    [
        (400, PARSED_IN_PART, Meaning.PARTLY),
        (400, CONFLICT, Meaning.PARTLY),
        (422, INFLUX_2, Meaning.PARTLY),
        (500, INFLUX_2, Meaning.PARTLY),
        (400, INFLUX_3, Meaning.PARTLY),
        (400, NOTHING_PARSED, Meaning.A_LINE),
        (400, INFLUX_2_PARSE, Meaning.A_LINE),
        (400, LONG_LINE, Meaning.A_LINE),
        (400, VM_BATCH, Meaning.A_LINE),
        (413, "", Meaning.TOO_LARGE),
        (413, PAGE, Meaning.TOO_LARGE),
        (404, "404 page not found\n", Meaning.NO_V2),
        (404, PAGE, Meaning.LATER),
        (404, '{"error":"database not found: \\"nope\\""}', Meaning.LATER),
        (404, '{"code":"not found","message":"bucket \\"b\\" not found"}', Meaning.LATER),
        (400, VM_PATH, Meaning.LATER),
        (400, VM_GZIP, Meaning.LATER),
        (400, VMAUTH_TOKEN, Meaning.LATER),
        (400, '{"error":"database is required"}', Meaning.LATER),
        (401, '{"error":"unable to parse authentication credentials"}', Meaning.LATER),
        (403, '{"error":"user is not authorized"}', Meaning.LATER),
        (422, INFLUX_3_LIMIT, Meaning.LATER),
        (500, '{"error":"timeout"}', Meaning.LATER),
        (503, "", Meaning.LATER),
    ],
)
def test_what_a_refusal_means(status: int, said: str, expected: Meaning) -> None:
    assert meaning(status, said) is expected


@pytest.mark.parametrize(
    ("said", "lines", "refused"),
    [
        (PARSED_IN_PART, 10, 2),
        (CONFLICT, 10, 2),
        (INFLUX_2, 30, 24),
        (INFLUX_2, 10, 10),  # never more than there were
        (INFLUX_3, 10, 3),
        ("partial write", 10, 1),
        ("partial write dropped=0", 10, 1),
        ("partial write dropped=7", 6, 6),
        ("partial write dropped=7", 7, 7),
        ("partial write dropped=7", 8, 7),
        ("unable to parse 'a' unable to parse 'b' error parsing line dropped=1", 10, 3),
        ('{"data": []}', 10, 1),
        ('{"data": "a line"}', 10, 1),
        ('{"data": {"a": 1, "b": 2}}', 10, 1),
        ('["data"]', 10, 1),
    ],
)
def test_how_many_lines_were_refused(said: str, lines: int, refused: int) -> None:
    assert refused_lines(said, lines) == refused


def test_what_a_server_says_is_shown_in_a_line_and_without_the_secret_it_repeats() -> None:
    assert in_short(VM_PATH) == 'unsupported path requested: "/x"'
    assert in_short(INFLUX_3_LIMIT).startswith("Adding a new database")
    assert in_short(PAGE) == "a web page"
    assert in_short(INFLUX_2).startswith("failure writing points")
    assert in_short('{"message": "", "error": "said"}') == "said"
    assert in_short('{"code": 5}') == '{"code": 5}'
    assert in_short('["a"]') == '["a"]'
    assert in_short(" two\n\t rows ") == "two rows"
    assert in_short("x" * 300) == "x" * 300
    assert in_short("x" * 301) == "x" * 300
    assert in_short(VMAUTH_TOKEN, "secret-word").endswith('"Bearer ***" in config')


@pytest.mark.parametrize(
    ("status", "found"),
    [(400, Meaning.A_LINE), (422, Meaning.A_LINE), (401, Meaning.LATER), (423, Meaning.LATER)],
)
def test_only_these_answers_put_it_down_to_a_line(status: int, found: Meaning) -> None:
    assert meaning(status, NOTHING_PARSED) is found
