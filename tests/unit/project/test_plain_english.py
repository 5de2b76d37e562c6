"""Plain English: the rules of HOUSE_STYLE.md that a program can check."""

import ast
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FOLDERS = ("hydrator", "adapters", "toil_batch_system_classad_hydrator")
PAGES = sorted(
    str(path.relative_to(ROOT))
    for pattern in ("*.md", "config.example.toml", "docs/**/*.md", "deploy/**/*", "hydrator/**/*.html")
    for path in ROOT.glob(pattern)
    if path.is_file() and path.suffix != ".pyc"
)
_QUOTE = re.compile(r"^( *)```(?:text output|json)\n.*?^\1```$|`[^`\n]+`", re.DOTALL | re.MULTILINE)
"""Real output, and names in code."""
TEXTS = [page for page in PAGES if page.endswith(".md") and page != "CHANGELOG.md"]
MAX_WORDS = 30
"""Words of the longest sentence on a page; the CHANGELOG has longer ones from before this rule."""
_BLOCK = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.)\s)|\n(?=[#|])")
"""The end of a paragraph, or the begin of a list item, a heading or a row."""
MODULES = sorted(str(path.relative_to(ROOT)) for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
CLAUSE = re.compile(r"(What|Whose|Who|Whether|Where|How|Why|That|Those|When|Which)\b")
BANNED = re.compile(
    r"\b(told|tells?|anew|somebody|nobody|stands|stood|lies|lying|heard|hears|ears|besides"
    r"|(?:is|are) no(?= [a-z])(?! (?:longer|more|less|later|larger|older|matter|other))"
    r"|of its own accord|but for|in peace|for ever)\b"
)
"""Words of the old private language, and "is no X" for "is not an X"."""
STORED_TEXTS = {
    "publisher, site, generation, as_of, heard",
    "nobody could be asked about it for longer than the age bound",
    "only letter case tells it from another",
}
"""Texts that the state file has: other words would be a second text for one reason, or another column."""
PARTICIPLE = re.compile(
    r"_*(?:told|said|kept|held|found|left|taken|shown|seen|heard|made|gone|known|given|[a-z]+ed)"
)
BANNED_LOCALS = {"told", "said", "kept", "heard", "judged"}
PARTICIPLES_ALLOWED = {"embed", "exceed", "feed", "need", "proceed", "published", "rejected", "seed", "speed"}
"""Verbs on -ed, and members of the ports: ``Publisher.published``, ``RejectionReporter.rejected``."""


def _docstrings(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            text = ast.get_docstring(node)
            if text:
                yield node.name, text


def _prose(path: Path, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the texts of *path* with blanks, that is docstrings and messages, and its comments."""
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and " " in text and text not in STORED_TEXTS and "create table" not in text:
            yield node.lineno, text
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string


def _problems(module: str) -> list[str]:
    path = ROOT / module
    tree = ast.parse(path.read_text("utf-8"))
    problems = [
        f"{module}: {name}: docstring opens with {word[0]!r}"
        for name, text in _docstrings(tree)
        if (word := CLAUSE.match(text))
    ]
    problems += [
        f"{module}: {node.name}: a participle is not a verb"
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and PARTICIPLE.fullmatch(node.name)
        and node.name.lstrip("_") not in PARTICIPLES_ALLOWED
    ]
    problems += [
        f"{module}:{node.lineno}: the local {node.id} is a participle: use a noun"
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in BANNED_LOCALS
    ]
    problems += [
        f"{module}:{line}: {word[0]!r} is on the list of words to avoid"
        for line, text in _prose(path, tree)
        for word in BANNED.finditer(text)
    ]
    return problems


def _page_problems(page: str) -> list[str]:
    text = (ROOT / page).read_text("utf-8")
    prose = _QUOTE.sub(lambda quote: "\n" * quote[0].count("\n"), text)
    return [
        f"{page}:{number}: {word[0]!r} is on the list of words to avoid"
        for number, line in enumerate(prose.splitlines(), 1)
        for word in BANNED.finditer(re.sub(r"\bthere (?:is|are) no\b", "", line, flags=re.IGNORECASE))
    ]


def _sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a page, without tables, headings and code; a name in code is one word."""
    text = re.sub(r"<!--.*?-->|^( *)```.*?^\1```$", "\n\n", text, flags=re.DOTALL | re.MULTILINE)
    for block in _BLOCK.split(text):
        if block.lstrip().startswith(("|", "#", "!", "[!")):
            continue
        words = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "CODE", block))
        yield from re.split(r"(?<=[.!?])[\"')*]*\s+", " ".join(words.split()))


def _long_sentences(text: str) -> list[str]:
    return [each for each in _sentences(text) if len(re.findall(r"\S*\w\S*", each)) > MAX_WORDS]


@pytest.mark.parametrize("page", TEXTS)
def test_page_has_no_long_sentence(page):
    assert _long_sentences((ROOT / page).read_text("utf-8")) == []


def test_long_sentences_are_found_and_tables_and_code_are_not_counted():
    long = "word " * MAX_WORDS + "more."
    block = f"```sh\n{long}\n```"
    assert _long_sentences(f"# {long}\n\n| {long} |\n\n{block}\n\n`{long}` is one word.") == []
    assert len(_long_sentences(f"- {long}\n- Short. {long} Short.")) == 2
    assert _long_sentences("word " * (MAX_WORDS - 1) + "end. " + "[one](two)") == []


@pytest.mark.parametrize("page", PAGES)
def test_page_has_no_word_to_avoid(page):
    assert _page_problems(page) == []


@pytest.mark.parametrize("module", MODULES)
def test_module_keeps_the_rules(module):
    assert _problems(module) == []


def test_each_class_name_is_used_for_one_class():
    places = defaultdict(set)
    for module in MODULES:
        for node in ast.parse((ROOT / module).read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef):
                places[node.name].add(module)
    twice = {name: sorted(modules) for name, modules in places.items() if len(modules) > 1}
    assert {name: modules for name, modules in twice.items() if not all(map(_is_copy, modules))} == {}


def _is_copy(module: str) -> bool:
    """Return whether *module* is a single file for other Pythons, which has copies of its own."""
    return module in {"hydrator/startd_cron.py", "hydrator/submit/job_wrapper.py"} or module.startswith(
        "toil_"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("it is no longer there", []),
        ("the port is no number", ["is no"]),
        ("there are no jobs", ["are no"]),
        ("nobody told the hook", ["nobody", "told"]),
        ("the schedd rejects the edit", []),
    ],
)
def test_banned_words_are_found_and_others_are_not(text, words):
    assert [word[0] for word in BANNED.finditer(text)] == words
