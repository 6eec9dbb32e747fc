"""HTML from strangers' texts."""

import pytest

from gpuvigil.web.markup import Html, tag


def test_texts_and_attributes_are_escaped_and_html_is_not() -> None:
    assert tag("b", "<i>", title="\"'>") == '<b title="&quot;&#x27;&gt;">&lt;i&gt;</b>'
    assert tag("b", Html("<i></i>")) == "<b><i></i></b>"


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("a-->b", "a-- &gt;b"),
        ("a--!>b", "a--! &gt;b"),
        ("a]>b", "a] &gt;b"),
        ("</script>", "&lt; /script&gt;"),
        ("</TITLE>", "&lt; /TITLE&gt;"),
        ("a -> b </b>", "a -&gt; b &lt;/b&gt;"),
    ],
)
def test_a_browsers_sanitiser_finds_no_reason_to_drop_an_attribute(value: str, kept: str) -> None:
    assert tag("b", title=value) == f'<b title="{kept}"></b>'
