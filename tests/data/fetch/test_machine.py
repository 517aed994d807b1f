"""Downloads and this machine: mirrors, local files, full disks, kills, and the command."""

import os
import resource
import signal
import subprocess
import sys
import threading

import pytest

from meshrec.cli import main
from meshrec.data.fetch.fetch import Fetcher
from meshrec.data.fetch.transport import open_address
from support.downloads import CONTENT, FAST, fails, partial, raw, source, whole

# --- mirrors and this machine's own files ------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["mirror/set/rows.bin", "mirror/rows.bin"])
def test_a_mirror_folder_needs_no_net(tmp_path, place):
    (tmp_path / place).parent.mkdir(parents=True)
    (tmp_path / place).write_bytes(CONTENT)
    fetcher = Fetcher(tmp_path / "data", mirror=str(tmp_path / "mirror"), offline=True, patience=FAST)
    whole(fetcher, source("https://example.org/rows.bin"))


def test_a_mirror_address_is_asked_first(tmp_path, site):
    base = site.url.rpartition("/some/")[0]
    whole(Fetcher(tmp_path / "data", mirror=f"{base}/copies/", patience=FAST), source("https://example.org/rows.bin"))
    assert site.requests[0]["path"] == "/copies/set/rows.bin"


def test_offline_without_a_mirror_says_what_to_do(tmp_path):
    for mirror, message in ((None, "name a --mirror"), (str(tmp_path), "holds neither set/rows.bin nor rows.bin")):
        fetcher = Fetcher(tmp_path / "data", mirror=mirror, offline=True)
        fails(fetcher, source("https://example.org/rows.bin"), message)


def test_file_addresses_with_odd_names(fetcher, tmp_path):
    there = tmp_path / "my data %20 ä.bin"
    there.write_bytes(CONTENT)
    whole(fetcher, source("file:///nowhere/x", there.as_uri()))


def test_a_part_of_a_local_file_is_gone_on_from_if_that_is_unchanged(tmp_path):
    there = tmp_path / "a"
    there.write_bytes(b"0123456789")
    with open_address(there.as_uri(), 0, None, FAST) as first:
        pass
    with open_address(there.as_uri(), 4, first.validator, FAST) as again:
        assert (again.start, b"".join(again.chunks)) == (4, b"456789")
    there.write_bytes(b"9876543210")
    os.utime(there, ns=(1, 1))
    with open_address(there.as_uri(), 4, first.validator, FAST) as other:
        assert (other.start, b"".join(other.chunks)) == (0, b"9876543210")


# --- full disks and kills ----------------------------------------------------------------------------------------------


def test_a_full_disk_ends_it_with_what_came_kept(fetcher, site):
    """A limit on file size stands in for the disk: the same error from the same write."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, hard))
    try:
        fails(fetcher, source(site.url), r"File too large after 1500000 bytes; make room and run the same command again")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert partial(fetcher).stat().st_size == 1_500_000
    whole(fetcher, source(site.url))
    assert site.offsets == [0, 1_500_000]


def test_a_file_that_will_not_fit_is_not_begun(fetcher, site):
    fails(fetcher, source(site.url, size=10**15), r"GB free, rows.bin needs 1000000.0 GB more; make room")
    assert site.offsets == []


KILLED = """
import sys
from pathlib import Path
from meshrec.data.fetch.fetch import Fetcher
from meshrec.data.fetch.sources import Source
Fetcher(Path(sys.argv[1])).fetch(Source.model_validate_json(sys.argv[2]))
"""


def test_a_killed_fetch_leaves_nothing_finished_and_the_next_goes_on(fetcher, site):
    site.pause = threading.Event()
    wanted = source(site.url)
    child = subprocess.Popen([sys.executable, "-c", KILLED, str(fetcher.data), wanted.model_dump_json()])
    try:
        assert site.half_sent.wait(30)
        deadline = threading.Event()
        while not (partial(fetcher).is_file() and partial(fetcher).stat().st_size >= 1 << 20):
            assert child.poll() is None
            deadline.wait(0.02)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert not raw(fetcher).exists()
    kept = partial(fetcher).stat().st_size
    site.pause.set()
    site.pause = None
    whole(fetcher, wanted)
    assert site.offsets == [0, kept]


# --- terms, and the command --------------------------------------------------------------------------------------------

TABLE = """
schema_version = 1
[set]
version = "1"
title = "Rows"
licence = "L"
licence_page = "https://example.org/l"
accept = "to be kind"
pages = ["https://example.org/"]
[[set.files]]
name = "rows.bin"
urls = ["URL"]
[[set.files]]
name = "more.bin"
urls = ["URL"]
"""


@pytest.fixture
def command(tmp_path, site):
    table = tmp_path / "sources.toml"
    table.write_text(TABLE.replace("URL", site.url))
    return ["fetch", "--sources", str(table), "--data", str(tmp_path / "data")]


def test_terms_must_be_accepted_before_a_byte_is_asked_for(command, tmp_path, site, capsys):
    assert main([*command, "set"]) == 2
    assert (
        "comes under terms: to be kind (L; https://example.org/l). If you accept them, say so by --accept"
        in capsys.readouterr().err
    )
    assert site.offsets == []
    assert main([*command, "set", "--accept-licence", "--file", "rows.bin"]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "data/raw/set/rows.bin")
    assert main([*command, "set", "--file", "rows.bin"]) == 0  # it is here: nothing is asked
    assert len(site.offsets) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["../set"], "../set: no data set of this name; there are set"),
        (["set", "--accept-licence", "--file", "../rows.bin"], "has no file '../rows.bin'; it has rows.bin, more.bin"),
    ],
)
def test_names_are_the_tables(command, arguments, message, capsys):
    assert main([*command, *arguments]) == 2
    assert message in capsys.readouterr().err


def test_without_a_name_the_sets_are_listed(command, capsys):
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "set" in printed
    assert "to be kind" in printed


def test_no_bar_where_there_is_no_terminal(command, capsys):
    main([*command, "set", "--accept-licence"])
    assert "\x1b" not in (output := capsys.readouterr().err)
    assert "━" not in output
