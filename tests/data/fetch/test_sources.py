import re

import pytest

from meshrec.data.fetch.errors import FetchError
from meshrec.data.fetch.lock import Lock, Pin
from meshrec.data.fetch.sources import TABLE, load_sources

GOOD = """
schema_version = 1
[set]
version = "1"
title = "T"
licence = "L"
licence_page = "https://example.org/"
pages = ["https://example.org/"]
[[set.files]]
name = "a.gz"
urls = ["https://example.org/a.gz"]
"""


def test_the_projects_own_table():
    sources = load_sources(TABLE)
    assert list(sources) == ["criteo-kaggle", "criteo-terabyte", "avazu", "amazon-electronics", "movielens-100k"]
    assert [file.name for file in sources["criteo-terabyte"].files] == [f"day_{day}.gz" for day in range(24)]
    for source in sources.values():
        hashes = [file.sha256 for file in source.files if file.sha256]
        assert len(set(hashes)) == len(hashes)
        assert all(url.startswith("https://") for file in source.files for url in file.urls)
        assert source.accept
    # an unofficial mirror is asked only for what it can't fake
    assert all(file.sha256 for file in sources["criteo-terabyte"].files if len(file.urls) > 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("schema_version = 1", ""), "schema_version is None, want 1"),
        (('"a.gz"', '"../a.gz"'), "set.files.0.name: String should match"),
        (('"a.gz"', '"/a.gz"'), "set.files.0.name"),
        (('"a.gz"', '".a"'), "set.files.0.name"),
        (("set", '"../set"'), "../set.name"),
        (("https://example.org/a.gz", "ftp://example.org/a.gz"), "set.files.0.urls.0"),
        (('name = "a.gz"', 'name = "a.gz"\nunpack = ["../x"]'), "set.files.0: Value error, unpack: '../x' is no path"),
        (('name = "a.gz"', 'name = "a.gz"\nunpack = ["/x"]'), "is no path inside an archive"),
        (('name = "a.gz"', 'name = "a.gz"\nunpack = ["x/b", "y/b"]'), "two files would get the same name"),
        (('name = "a.gz"', 'name = "a.gz"\nsha256 = "abc"'), "set.files.0.sha256"),
        (('name = "a.gz"', 'name = "a.gz"\nsize = 3'), "set.files.0.size: Extra inputs"),
        (("[[set.files]]", '[[set.files]]\nname = "a.gz"\nurls = []\n[[set.files]]'), "files: ['a.gz'] more than once"),
        (("[set]", "[set"), "can't be read"),
    ],
)
def test_tables_that_are_refused(tmp_path, change, message):
    table = tmp_path / "sources.toml"
    old, new = change
    table.write_text(GOOD.replace(old, new))
    with pytest.raises(FetchError, match=re.escape(message)):
        load_sources(table)


def test_a_table_that_is_not_there(tmp_path):
    with pytest.raises(FetchError, match="No such file or directory; it is the table of data sets"):
        load_sources(tmp_path / "none.toml")


def test_a_pin_is_never_overwritten(tmp_path):
    lock = Lock(tmp_path / "lock.json")
    lock.add("b", Pin(bytes=1, sha256="0" * 64, origin="x"))
    lock.add("a", Pin(bytes=2, sha256="1" * 64, origin="x"))
    lock.add("b", Pin(bytes=1, sha256="0" * 64, origin="elsewhere"))
    assert lock.get("b").origin == "x"
    assert lock.path.read_text().index('"a"') < lock.path.read_text().index('"b"')
    with pytest.raises(FetchError, match="b is recorded with sha256 000"):
        lock.add("b", Pin(bytes=1, sha256="2" * 64, origin="x"))


def test_a_damaged_lock_is_not_forgotten(tmp_path):
    lock = Lock(tmp_path / "lock.json")
    lock.path.write_text('{"schema_version": 1, "fi')
    for act in (lambda: lock.get("a"), lambda: lock.add("a", Pin(bytes=1, sha256="0" * 64, origin="x"))):
        with pytest.raises(FetchError, match="restore it, or delete it to trust anew"):
            act()
