"""The examples in docstrings of the public names of the library run as written."""

from __future__ import annotations

import doctest
import inspect

import pytest

from tests.public_names import list_values


def _find_examples():
    """Return the docstrings with examples of public functions, classes and methods, by name."""
    found = {}
    for values in list_values().values():
        for name, value in values.items():
            members = inspect.getmembers(value) if inspect.isclass(value) else ()
            for path, member in [
                (name, value),
                *((f"{name}.{key}", each) for key, each in members if key[0] != "_"),
            ]:
                is_ours = str(getattr(member, "__module__", "")).startswith("session_core")
                text = (is_ours and inspect.getdoc(member)) or ""
                if ">>> " in text:
                    found[text] = path
    return {path: text for text, path in found.items()}


EXAMPLES = _find_examples()


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_example_of_docstring_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    test = doctest.DocTestParser().get_doctest(EXAMPLES[name], {}, name, None, None)
    report = []
    assert doctest.DocTestRunner().run(test, out=report.append).failed == 0, "".join(report)


def test_entry_points_have_examples():
    assert {"SessionDB", "SessionDB.search", "open_home", "Maintenance.plan"} <= EXAMPLES.keys()
