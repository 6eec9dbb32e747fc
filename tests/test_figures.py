"""What published figures rest on: each names a commit that exists, and code that is not long changed."""

import json
import subprocess
from pathlib import Path

import pytest

from scripts import benchmarks_page, fleet_page, scaling_page
from scripts.commits import cited, commits_since, forget_lost, is_kept, is_outdated, is_whole
from scripts.figures import BENCHMARKS, FIGURES, Figure, Figures

ROOT = Path(__file__).parent.parent
FILES = (
    *sorted(ROOT.glob("benchmarks/*.json")),
    *sorted(ROOT.glob("evaluation/*.json")),
    ROOT / "soak/results.json",
)

needs_history = pytest.mark.skipif(
    not is_whole(), reason="needs the whole git history, which a shallow clone or an export lacks"
)


@needs_history
@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_each_figure_names_a_commit_that_this_branch_has(file: Path) -> None:
    commits = set(cited(json.loads(file.read_text(encoding="utf-8"))))
    lost = {it for it in commits if not is_kept(it)}
    again = "run make docs" if file.parent.name == "evaluation" else "measure it again"
    assert not lost, f"{again}: {file.name} names what no history has"


def named(figure: Figure) -> str:
    return ".".join(figure.place)


MEASURED = [figure for figure in FIGURES if Figures().get(*figure.place) is not None]


@needs_history
@pytest.mark.parametrize("figure", MEASURED, ids=named)
def test_no_figure_is_older_than_it_may_be_while_its_code_has_changed(figure: Figure) -> None:
    commit = Figures().commit(figure)
    assert commit is not None, f"{figure.title} names no commit"
    again = f"run {figure.command}, or delete {figure.place} and run make docs"
    assert not is_outdated(commit, figure.code), f"{figure.title} is of {commit}: {again}"


@pytest.mark.parametrize("figure", FIGURES, ids=named)
def test_the_code_that_a_figure_measures_is_there(figure: Figure) -> None:
    assert [it for it in figure.code if not (ROOT / it.removeprefix("!")).exists()] == []


def test_every_result_belongs_to_a_figure() -> None:
    parts = {figure.place[0] for figure in FIGURES if len(figure.place) > 1}
    found: set[tuple[str, ...]] = set()
    for file in BENCHMARKS.glob("*.json"):
        keys = json.loads(file.read_text(encoding="utf-8")) if file.stem in parts else ()
        found |= {(file.stem, key) for key in keys} if keys else {(file.stem,)}
    assert found <= {figure.place for figure in FIGURES}


def pages(figures: Figures) -> str:
    each = (it.page(figures) for it in (benchmarks_page, fleet_page, scaling_page))
    return "\n".join("\n".join(page) for page in each)


def test_without_any_result_the_pages_say_what_measures_each(tmp_path: Path) -> None:
    text = pages(Figures(tmp_path))
    assert [it for it in FIGURES if it.missing not in text] == []
    assert "None" not in text


@pytest.mark.parametrize("figure", MEASURED, ids=named)
def test_one_result_alone_is_shown_and_the_others_are_missing(
    figure: Figure, tmp_path: Path
) -> None:
    found: object = Figures().get(*figure.place)
    for key in reversed(figure.place[1:]):
        found = {key: found}
    (tmp_path / f"{figure.place[0]}.json").write_text(json.dumps(found), encoding="utf-8")

    text = pages(Figures(tmp_path))

    assert [it for it in FIGURES if it.missing not in text] == [figure]


def test_commits_are_found_in_lists_and_below_other_keys() -> None:
    result = {"history": [{"commit": "a"}, {"commit": None}], "runs": {"x": {"commit": "b-dirty"}}}
    assert list(cited(result)) == ["a", "b-dirty"]


class Repository:
    """A git repository with as many commits as are asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.git("init", "-q", "-b", "main")

    def git(self, *words: str, told: str = "") -> str:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words]
        done = subprocess.run(
            command, cwd=self.folder, input=told, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def commit(self, count: int, path: str = "") -> str:
        """That many commits of nothing, but that the last changes `path`; the last of them."""
        told = []
        for number in range(count):
            said = f"{path} {number}"
            who = "committer a <a@b> 0 +0000"
            told.append(f"commit refs/heads/main\n{who}\ndata {len(said)}\n{said}\n")
            if number == 0 and self.git("for-each-ref", "refs/heads/main"):
                told.append("from refs/heads/main^0\n")
            if number == count - 1 and path:
                now = self.git("for-each-ref", "--format=%(objectname)")
                told.append(f"M 100644 inline {path}\ndata {len(now)}\n{now}\n")
        self.git("fast-import", "--quiet", told="".join(told))
        return self.git("rev-parse", "refs/heads/main")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


@pytest.mark.medium
@pytest.mark.parametrize(
    ("commits", "path", "outdated"),
    [
        (200, "hub/code.py", False),
        (201, "hub/code.py", True),
        (201, "", False),
        (201, "docs/page.md", False),
        (201, "hub/records/code.py", False),
    ],
)
def test_a_figure_is_measured_again_when_its_code_changed_and_200_commits_went_by(
    repository: Repository, commits: int, path: str, outdated: bool
) -> None:
    repository.commit(1, "hub/code.py")
    measured = repository.commit(1, "hub/records/code.py")
    repository.commit(commits, path)
    assert is_outdated(measured, ("hub", "!hub/records"), repository.folder) is outdated


@pytest.mark.medium
def test_a_commit_that_only_merges_others_makes_no_figure_older(repository: Repository) -> None:
    first = repository.commit(1, "a")
    aside = repository.git("commit-tree", "-p", first, "-m", "aside", f"{first}^{{tree}}")
    here = repository.commit(1, "b")
    merge = ("commit-tree", "-p", here, "-p", aside, "-m", "merge", f"{here}^{{tree}}")
    repository.git("update-ref", "refs/heads/main", repository.git(*merge))
    assert commits_since(first, repository.folder) == 2


def test_commits_that_a_rebase_left_behind_are_forgotten(repository: Repository) -> None:
    first = repository.commit(1, "a")
    lost = repository.commit(1, "b")
    repository.git("update-ref", "refs/heads/main", first)
    kept = repository.commit(1, "c")
    file = repository.folder / "results.json"
    line = '{{"history": [{{"commit": "{}"}}], "commit": "{}-dirty", "also": {{"commit": "{}"}}}}'
    file.write_text(line.format(lost, kept, first))
    forget_lost(file, repository.folder)
    expected = line.format(lost, kept, first).replace(f'"{lost}"', "null")
    assert file.read_text() == expected
