"""A line's own time as one of its fields, in microseconds."""

from gpuvigil.lineprotocol.mark import marked


def test_each_line_with_a_time_has_it_as_a_field_too() -> None:
    lines = b"gpu,node=n x=1i 1769860800123456789\nnode load=2 1769860800000000000"
    assert marked(lines) == (
        b"gpu,node=n x=1i,at_microseconds=1769860800123456i 1769860800123456789\n"
        b"node load=2,at_microseconds=1769860800000000i 1769860800000000000"
    )


def test_a_line_without_a_time_stays_as_it_is() -> None:
    assert marked(b"gpu,node=n x=1i\n") == b"gpu,node=n x=1i\n"
