"""Finding the home, and the kind of a folder."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from session_core import (
    Unsupported,
    find_active_profile,
    find_home,
    list_homes,
)
from session_core.home import DatabaseAddress, Home, is_hermes_home

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="homes of other platforms")


def make_hermes_home(path: Path, sign: str = "state.db") -> Path:
    (path / sign).parent.mkdir(parents=True, exist_ok=True)
    (path / sign).touch()
    return path


@pytest.mark.requirement("faces:found")
def test_named_home_overrides_every_default(tmp_path: Path) -> None:
    make_hermes_home(tmp_path / ".hermes")
    environ = {"HOME": str(tmp_path), "MCP_SESSIONS_HOME": "/m", "HERMES_HOME": "/h"}
    named = tmp_path / "named"
    assert find_home(named, environ) == Home(named, "--home")
    assert find_home(None, environ) == Home(Path("/m"), "MCP_SESSIONS_HOME")
    del environ["MCP_SESSIONS_HOME"]
    assert find_home(None, environ) == Home(Path("/h"), "HERMES_HOME")
    del environ["HERMES_HOME"]
    assert find_home(None, environ).path == tmp_path / ".hermes"


@pytest.mark.requirement("faces:found")
def test_address_names_its_store(tmp_path: Path) -> None:
    make_hermes_home(tmp_path / ".hermes")
    for address, name in (("postgresql://u@h/d?home=a%20b", "a b"), ("postgres://h", "main")):
        home = find_home(address, {})
        assert (home.path, home.db_path) == (None, None)
        assert list_homes(home, {"HOME": str(tmp_path)}) == {name: DatabaseAddress(address)}
        environ = {"MCP_SESSIONS_HOME": address, "HOME": str(tmp_path)}
        assert list(list_homes(find_home(None, environ), environ)) == [name, "hermes"]
    assert find_home("c:/mine", {}).place == Path.cwd() / "c:" / "mine"


@pytest.mark.parametrize("address", ["mysql://u:secret@h/d", "file:///u:secret@h"])
def test_other_scheme_is_refused_without_password(address: str) -> None:
    for explicit, environ in ((address, {}), (None, {"MCP_SESSIONS_HOME": address})):
        with pytest.raises(Unsupported, match="postgresql://") as caught:
            find_home(explicit, environ)
        assert "secret" not in str(caught.value)
    with pytest.raises(Unsupported):
        find_home(None, {"HERMES_HOME": "postgresql://h"})


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://u:secret@h:1,[::1]:2/d?home=x", "postgresql://u@h:1,[::1]:2/d?home=x"),
        ("postgresql://u:secr@et@h/d", "postgresql://u@h/d"),
        ("postgresql://h?password=secret&host=/run&user=u", "postgresql://h?host=/run&user=u"),
        ("postgresql://h?sslpassword=secret&home=%C3%A4", "postgresql://h?home=%C3%A4"),
        ("postgresql://u:se/cret@h/d", "postgresql://…"),
        ("postgresql://u:12?secret@h/d", "postgresql://…"),
        ("postgresql://u:se#cret@h/d", "postgresql://u@h/d"),
        ("postgresql://u:x@h#secret/d", "postgresql://…"),
        ("postgresql://secret secret/d", "postgresql://…"),
    ],
)
def test_address_as_text_has_no_password(address: str, shown: str) -> None:
    place = DatabaseAddress(address)
    assert (str(place), place.can_be_shown) == (shown, False)
    assert "secret" not in repr(place)


@pytest.mark.parametrize("address", ["postgresql://u@h:1/d?home=x", "postgres://?service=fleet"])
def test_address_without_password_is_shown(address: str) -> None:
    place = DatabaseAddress(address)
    assert (str(place), place.can_be_shown) == (address, True)


@pytest.mark.requirement("faces:found")
def test_empty_home_variable_is_ignored(tmp_path: Path) -> None:
    make_hermes_home(tmp_path / ".hermes")
    environ = {"HOME": str(tmp_path), "MCP_SESSIONS_HOME": "", "HERMES_HOME": ""}
    assert find_home(None, environ).path == tmp_path / ".hermes"


@pytest.mark.requirement("faces:found")
@pytest.mark.parametrize(
    "sign", ["state.db", "config.yaml", "gateway.json", "sessions/sessions.json"]
)
def test_hermes_home_is_found_by_known_files(tmp_path: Path, sign: str) -> None:
    make_hermes_home(tmp_path / ".hermes", sign)
    home = find_home(None, {"HOME": str(tmp_path)})
    assert home.path == tmp_path / ".hermes"
    assert home.db_path == tmp_path / ".hermes" / "state.db"


@pytest.mark.requirement("faces:found")
def test_empty_hermes_folder_is_no_home(tmp_path: Path) -> None:
    (tmp_path / ".hermes" / "logs").mkdir(parents=True)
    assert find_home(None, {"HOME": str(tmp_path)}).path != tmp_path / ".hermes"
    assert not is_hermes_home(tmp_path / ".hermes")


@pytest.mark.requirement("faces:found")
@pytest.mark.skipif(sys.platform != "linux", reason="the data folder of Linux")
def test_default_home_is_in_platform_data_folder(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    assert find_home(None, environ).path == tmp_path / ".local" / "share" / "mcp-sessions"
    environ["XDG_DATA_HOME"] = str(tmp_path / "data")
    assert find_home(None, environ).path == tmp_path / "data" / "mcp-sessions"
    environ["XDG_DATA_HOME"] = "relative"
    assert find_home(None, environ).path == tmp_path / ".local" / "share" / "mcp-sessions"


@pytest.mark.requirement("faces:found")
def test_missing_or_relative_home_is_used_literally(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_home("not/there", {}).path == tmp_path / "not" / "there"
    assert find_home("~/mine", {}).path == Path(os.environ["HOME"]) / "mine"
    assert not (tmp_path / "not").exists()


@pytest.mark.requirement("faces:found")
def test_home_symlink_is_not_resolved(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert find_home(tmp_path / "link", {}).path == tmp_path / "link"


@pytest.mark.requirement("faces:found")
def test_finding_home_creates_no_files(tmp_path: Path) -> None:
    find_home(None, {"HOME": str(tmp_path / "user")})
    assert not (tmp_path / "user" / ".local").exists()


@pytest.mark.requirement("faces:found")
def test_unreadable_hermes_folder_counts_as_home() -> None:
    with tempfile.TemporaryDirectory() as folder:
        user = Path(folder)
        user.chmod(0o755)
        make_hermes_home(user / ".hermes").chmod(0)
        with _run_as_nobody():
            assert find_home(None, {"HOME": str(user)}).path == user / ".hermes"
            assert is_hermes_home(user / ".hermes")
        (user / ".hermes").chmod(0o700)


@contextmanager
def _run_as_nobody() -> Iterator[None]:
    """Become another user for a moment, since root can read all folders."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.requirement("faces:found")
def test_regular_file_is_no_hermes_home(tmp_path: Path) -> None:
    (tmp_path / ".hermes").write_text("a file")
    assert not is_hermes_home(tmp_path / ".hermes")
    assert find_home(None, {"HOME": str(tmp_path)}).path != tmp_path / ".hermes"


@pytest.mark.requirement("faces:profiles-found")
def test_default_hermes_profile_is_reported_not_followed(tmp_path: Path) -> None:
    assert find_active_profile(tmp_path) is None
    (tmp_path / "profiles" / "work").mkdir(parents=True)
    (tmp_path / "config.yaml").touch()
    for text, name in (("work\n", "work"), (" \n", None), ("x" * 5_000, "x" * 200)):
        (tmp_path / "active_profile").write_text(text)
        assert find_active_profile(tmp_path) == name
    assert find_home(tmp_path).path == tmp_path
    (tmp_path / "active_profile").unlink()
    (tmp_path / "active_profile").mkdir()
    assert find_active_profile(tmp_path) is None


@pytest.mark.requirement("faces:profiles-found")
def test_profiles_are_stores_of_hermes(tmp_path: Path) -> None:
    for name in ("work", "home"):
        (tmp_path / "profiles" / name).mkdir(parents=True)
    (tmp_path / "profiles" / "a file").touch()
    assert list_homes(find_home(tmp_path), {"HOME": str(tmp_path / "user")}) == {
        "hermes": tmp_path,
        "hermes:home": tmp_path / "profiles" / "home",
        "hermes:work": tmp_path / "profiles" / "work",
    }


@pytest.mark.requirement("faces:profiles-found")
def test_named_home_without_signs_is_own(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path)}
    (tmp_path / ".hermes").mkdir()
    (tmp_path / ".hermes" / "state.db").touch()
    assert list_homes(find_home(tmp_path / "x.db", env), env) == {"own": tmp_path / "x.db"}
    assert list_homes(find_home(tmp_path / ".hermes", env), env) == {"hermes": tmp_path / ".hermes"}


@pytest.mark.requirement("faces:profiles-found")
def test_usual_homes_are_stores_too(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path), "MCP_SESSIONS_HOME": str(tmp_path / "mine")}
    own = tmp_path / ".local" / "share" / "mcp-sessions"
    assert list_homes(find_home(None, env), env) == {"own": tmp_path / "mine"}
    for folder in (tmp_path / ".hermes", own):
        folder.mkdir(parents=True)
        (folder / "state.db").touch()
    del env["MCP_SESSIONS_HOME"]
    stores = list_homes(find_home(None, env), env)
    assert stores == {"hermes": tmp_path / ".hermes", "own": own}
    assert list(stores) == ["hermes", "own"]
