"""What counts as a line of code."""

from pathlib import Path

from scripts.mass import code_lines, counts

SOURCE = '''\
"""A module
of two lines."""

# A comment.
TEXT = """no docstring
of two lines"""


class It:
    """One line."""

    def called(  # with a comment
        self,
    ) -> str:
        """Two
        lines."""

        return TEXT
'''


def test_comments_docstrings_and_empty_lines_are_no_code(tmp_path: Path) -> None:
    file = tmp_path / "it.py"
    file.write_text(SOURCE, encoding="utf-8")
    assert code_lines(file) == 2 + 1 + 3 + 1


def test_of_a_checkout_its_installed_folders_settings_commands_and_pages_are_counted(
    tmp_path: Path,
) -> None:
    (tmp_path / "docs/decisions").mkdir(parents=True)
    (tmp_path / "docs/settings.md").write_text("| key | default |\n|---|---|\n| `a` | 1 |\n")
    (tmp_path / "docs/decisions/1.md").write_text("Two words\n")
    (tmp_path / "pyproject.toml").write_text(
        '[project.entry-points."gpuvigil.commands"]\nup = "a:main"\n'
        '[tool.setuptools.packages.find]\ninclude = ["a*"]\n'
    )
    for folder in ("a/b", "c"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "it.py").write_text("A = 1\n")
    assert list(counts(tmp_path).values()) == [1, 1, 0, 1, 1, 13, 2]
