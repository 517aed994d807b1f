"""Downloads from a real server that misbehaves: what lands, what is said, and what the next call does."""

import gzip
import hashlib
import io
import json
import os
import resource
import signal
import subprocess
import sys
import tarfile
import threading
import zipfile

import pytest

from meshrec.cli import main
from meshrec.data.fetch.errors import FetchError
from meshrec.data.fetch.fetch import Fetcher
from meshrec.data.fetch.sources import Source
from meshrec.data.fetch.transport import Patience, open_address
from support.bad_server import PAGE, Site, serving

CONTENT = bytes(os.urandom(3_000_000))
SHA256 = hashlib.sha256(CONTENT).hexdigest()
FAST = Patience(attempts=3, backoff_seconds=0.01, most_seconds=2, timeout_seconds=5)


def source(*urls, sha256=SHA256, size=None, **changes):
    file = {"name": "rows.bin", "urls": list(urls), "sha256": sha256, "bytes": size, **changes}
    page = "https://example.org/"
    return Source.model_validate(
        {"name": "set", "version": "1", "title": "T", "licence": "L", "licence_page": page, "pages": [page], "files": [file]}
    )


@pytest.fixture
def fetcher(tmp_path):
    return Fetcher(tmp_path / "data", patience=FAST)


@pytest.fixture
def site():
    with serving(Site(CONTENT)) as site:
        yield site


def raw(fetcher, name="rows.bin"):
    return fetcher.data / "raw" / "set" / name


def partial(fetcher, name="rows.bin"):
    return raw(fetcher, f".{name}.partial")


def whole(fetcher, origin):
    """Fetch, and see that exactly the file is there and nothing else."""
    assert fetcher.fetch(origin) == [raw(fetcher)]
    assert raw(fetcher).read_bytes() == CONTENT
    assert sorted(p.name for p in raw(fetcher).parent.iterdir()) == [".fetch.lock", "rows.bin"]


def fails(fetcher, origin, message):
    with pytest.raises(FetchError, match=message):
        fetcher.fetch(origin)
    assert not raw(fetcher).exists()


def test_a_file_lands_under_the_tables_name_and_is_not_fetched_again(fetcher, site):
    whole(fetcher, source(site.url, size=len(CONTENT)))
    whole(fetcher, source(site.url, size=len(CONTENT)))
    assert site.offsets == [0]
    assert not fetcher.lock.path.exists()  # the table vouches for it


def test_an_unverified_file_is_pinned_by_its_first_download(fetcher, site):
    whole(fetcher, source(site.url, sha256=None))
    pin = json.loads(fetcher.lock.path.read_text())["files"]["set/1/rows.bin"]
    assert pin == {"bytes": len(CONTENT), "sha256": SHA256, "origin": site.url}
    raw(fetcher).unlink()
    site.content, site.tag = CONTENT[:-1] + b"!", '"v2"'
    fails(fetcher, source(site.url, sha256=None), f"want {len(CONTENT)} bytes with sha256 {SHA256}")


def test_a_broken_connection_is_taken_up_where_it_broke(fetcher, site):
    site.cut_after = [1_000_000, 500_000]
    whole(fetcher, source(site.url))
    assert site.offsets == [0, 1_000_000, 1_500_000]
    assert [request["if_range"] for request in site.requests] == [None, '"v1"', '"v1"']


def test_chunked_bodies_without_a_length_are_whole_or_broken_off(fetcher, site):
    site.chunked, site.cut_after = True, [1_000_000]
    whole(fetcher, source(site.url, sha256=None))
    assert len(site.offsets) == 2


def test_a_server_that_ignores_ranges_sends_it_all_again(fetcher, site):
    site.ranges, site.cut_after = False, [1_000_000]
    whole(fetcher, source(site.url))
    assert site.offsets == [0, 1_000_000]


def test_a_server_that_always_breaks_off_is_given_up_and_what_came_is_kept(fetcher, site):
    site.cut_after = [1_000_000, 0, 0, 0]
    fails(fetcher, source(site.url), "without getting further")
    assert partial(fetcher).stat().st_size == 1_000_000
    whole(fetcher, source(site.url))
    assert site.offsets[-1] == 1_000_000


def test_a_server_that_never_gets_further_and_ignores_ranges_is_given_up(fetcher, site):
    site.ranges, site.cut_after = False, [1000] * 20
    fails(fetcher, source(site.url), "without getting further")
    assert len(site.offsets) < 8


def test_flipped_bytes_are_refused_and_a_mirror_is_asked(fetcher, site):
    site.flip = 2_000_000
    fails(fetcher, source(site.url), rf"sends {len(CONTENT)} bytes with sha256 \w+; want sha256 {SHA256}")
    assert not partial(fetcher).exists()
    with serving(Site(CONTENT)) as mirror:
        whole(fetcher, source(site.url, mirror.url))
        assert mirror.offsets == [0]


def test_a_bad_part_from_before_is_fetched_anew_from_the_same_address(fetcher, site):
    raw(fetcher).parent.mkdir(parents=True)
    partial(fetcher).write_bytes(b"x" * 1000)
    whole(fetcher, source(site.url))
    assert site.offsets == [1000, 0]


def test_parts_of_two_versions_are_never_joined(fetcher, site):
    """Without a hash nobody would notice: a changed tag makes the server send all, another address begins anew."""
    site.cut_after = [1_000_000, 0, 0, 0]
    fails(fetcher, source(site.url, sha256=None), "without getting further")
    site.content, site.tag = CONTENT[::-1], '"v2"'
    fetcher.fetch(source(site.url, sha256=None))
    assert raw(fetcher).read_bytes() == CONTENT[::-1]
    raw(fetcher).unlink()
    fetcher.lock.path.unlink()
    site.content, site.cut_after = CONTENT, [1_000_000, 0, 0, 0]
    with serving(Site(CONTENT[::-1])) as mirror:
        fetcher.fetch(source(site.url, mirror.url, sha256=None))
        assert mirror.offsets == [0]
    assert raw(fetcher).read_bytes() == CONTENT[::-1]


def test_without_tag_and_hash_there_is_nothing_to_go_on_from(fetcher, site):
    site.tag, site.cut_after = None, [1_000_000]
    whole(fetcher, source(site.url, sha256=None))
    assert site.offsets == [0, 0]


def test_a_weak_tag_promises_nothing(fetcher, site):
    site.tag, site.cut_after = 'W/"v1"', [1_000_000]
    whole(fetcher, source(site.url, sha256=None))
    assert site.offsets == [0, 0]


@pytest.mark.parametrize("kind", ["text/html; charset=utf-8", "application/octet-stream"])
def test_a_web_page_is_not_the_file(fetcher, site, kind):
    site.page, site.page_type = PAGE, kind
    fails(fetcher, source(site.url, sha256=None), "sends a web page")
    assert not fetcher.lock.path.exists()
    site.page = None
    whole(fetcher, source(site.url, sha256=None))


def test_busy_servers_are_waited_for(fetcher, site):
    site.statuses = [(429, {"Retry-After": "1"}), (503, {})]
    whole(fetcher, source(site.url))
    assert len(site.offsets) == 3


def test_servers_that_stay_busy_are_given_up(fetcher, site):
    site.statuses = [(503, {"Retry-After": "0"})] * 10
    fails(fetcher, source(site.url), "503 Service Unavailable, and so again and again")
    assert len(site.offsets) == FAST.attempts


@pytest.mark.parametrize(("status", "message"), [(404, "404 Not Found"), (403, "does it want an account")])
def test_refusals_are_not_repeated(fetcher, site, status, message):
    site.statuses = [(status, {})] * 3
    fails(fetcher, source(site.url), message)
    assert len(site.offsets) == 1


def test_redirects_are_followed_but_not_to_a_folder_above(fetcher, site):
    with serving(Site(b"", redirect=site.url.replace("/some/path", "/../../../etc"))) as first:
        whole(fetcher, source(first.url))


def test_a_redirect_to_a_web_page_is_refused(fetcher, site):
    site.page = PAGE
    with serving(Site(b"", redirect=site.url)) as first:
        fails(fetcher, source(first.url), "sends a web page")


def test_a_length_that_is_not_the_tables_is_refused_before_anything_is_read(fetcher, site):
    fails(fetcher, source(site.url, size=4_000_000), "says that the file has 3000000 bytes, want 4000000")
    assert partial(fetcher).exists() is False


def test_a_length_that_is_too_small_is_found_out(fetcher, site):
    site.said_length = 2_999_000
    fails(fetcher, source(site.url), "sends 2999000 bytes")


def test_a_length_that_is_too_large_is_found_out(fetcher, site):
    site.said_length = 3_001_000
    fails(fetcher, source(site.url, sha256=None), "says 3000000 bytes now and said 3001000 before")
    whole(fetcher, source(site.url))  # with a hash to judge by, what came is right


def test_a_body_of_unknown_length_is_refused(fetcher, site):
    site.length = False
    fails(fetcher, source(site.url, sha256=None), "doesn't say how long the file is")


def test_a_body_that_has_no_end_is_cut(fetcher, site):
    site.chunked = True
    fails(fetcher, source(site.url, size=1_000_000), "sends more than the 1000000 bytes")


def test_a_download_that_was_complete_but_not_renamed_is_not_read_again(fetcher, site):
    raw(fetcher).parent.mkdir(parents=True)
    partial(fetcher).write_bytes(CONTENT)
    note = {"address": site.url, "validator": '"v1"'}
    raw(fetcher, ".rows.bin.partial.json").write_text(json.dumps(note))
    whole(fetcher, source(site.url, sha256=None))
    assert site.offsets == [len(CONTENT)]


def test_an_unreachable_address_is_named_and_the_next_one_asked(fetcher, site):
    gone = "http://127.0.0.1:9/rows.bin"
    fails(fetcher, source(gone), r"127.0.0.1:9/rows.bin: can't be reached: .*refused")
    whole(fetcher, source(gone, site.url))


def test_what_lies_here_damaged_is_refused_and_left_alone(fetcher, site):
    whole(fetcher, source(site.url))
    raw(fetcher).write_bytes(CONTENT[:-5])
    with pytest.raises(FetchError, match=rf"rows.bin: sha256 is \w+, 2999995 bytes; want {SHA256}. Move it away"):
        fetcher.fetch(source(site.url))
    assert raw(fetcher).stat().st_size == 2_999_995


def test_a_file_put_here_by_hand_is_taken_and_pinned(fetcher, site, caplog):
    raw(fetcher).parent.mkdir(parents=True)
    raw(fetcher).write_bytes(CONTENT)
    whole(fetcher, source(site.url, sha256=None))
    assert "put here by hand" in caplog.text
    assert fetcher.lock.get("set/1/rows.bin").sha256 == SHA256
    assert site.offsets == []


def test_a_second_fetch_at_the_same_time_is_refused(fetcher, site):
    site.pause = threading.Event()
    first = threading.Thread(target=fetcher.fetch, args=(source(site.url),))
    first.start()
    assert site.half_sent.wait(10)
    with pytest.raises(FetchError, match="another fetch is at work"):
        fetcher.fetch(source(site.url))
    site.pause.set()
    first.join()
    whole(fetcher, source(site.url))


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


# --- archives ----------------------------------------------------------------------------------------------------------


def tar_of(members, compress=True):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz" if compress else "w") as archive:
        for name, content in members.items():
            info = content if isinstance(content, tarfile.TarInfo) else tarfile.TarInfo(name)
            info.size = 0 if isinstance(content, tarfile.TarInfo) else len(content)
            archive.addfile(info, None if isinstance(content, tarfile.TarInfo) else io.BytesIO(content))
    return buffer.getvalue()


def zip_of(members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def packed(tmp_path, content, unpack, sha256=None):
    there = tmp_path / "packed"
    there.write_bytes(content)
    return source(there.as_uri(), sha256=sha256, unpack=unpack)


MEMBERS = {"readme": b"r", "./sub/train.txt": CONTENT[:1000], "empty.txt": b""}


@pytest.mark.parametrize("pack", [tar_of, lambda members: tar_of(members, compress=False), zip_of])
def test_wanted_members_alone_are_unpacked_and_not_twice(fetcher, tmp_path, pack):
    origin = packed(tmp_path, pack(MEMBERS), ["sub/train.txt", "empty.txt"])
    for _ in range(2):
        assert fetcher.fetch(origin) == [raw(fetcher, "train.txt"), raw(fetcher, "empty.txt")]
        assert raw(fetcher, "train.txt").read_bytes() == CONTENT[:1000]
        assert sorted(p.name for p in raw(fetcher).parent.iterdir()) == [".fetch.lock", "empty.txt", "rows.bin", "train.txt"]
        times = raw(fetcher, "train.txt").stat().st_mtime_ns
    assert raw(fetcher, "train.txt").stat().st_mtime_ns == times
    raw(fetcher, "train.txt").unlink()
    fetcher.fetch(origin)
    assert raw(fetcher, "train.txt").read_bytes() == CONTENT[:1000]
    raw(fetcher, "train.txt").write_bytes(b"other")
    with pytest.raises(FetchError, match=r"train.txt: sha256 is"):
        fetcher.fetch(origin)


def link(name, target, kind=tarfile.SYMTYPE):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (tar_of({"../evil": b"x", "train.txt": b"y"}), "'../evil' would land outside"),
        (tar_of({"train.txt": b"y", "/tmp/evil": b"x"}), "'/tmp/evil' would land outside"),
        (tar_of({"train.txt": link("train.txt", "/etc/passwd")}), "refused"),
        (tar_of({"train.txt": link("train.txt", "other"), "other": b"x"}), "train.txt is no plain file"),
        (tar_of({"train.txt": link("train.txt", "../../x", tarfile.LNKTYPE)}), "refused"),
        (zip_of({"../evil": b"x", "train.txt": b"y"}), "would land outside"),
        (zip_of({"..\\evil": b"x", "train.txt": b"y"}), "would land outside"),
        (tar_of({"readme": b"x"}), "has no member train.txt"),
        (tar_of({"train.txt": CONTENT})[:-2000], "can't be unpacked"),
        (tar_of({"train.txt": CONTENT})[:-5] + b"12345", "can't be unpacked"),
        (gzip.compress(b"no tar"), "can't be unpacked"),
        (b"neither" * 100, "can't be unpacked"),
    ],
)
def test_hostile_and_damaged_archives_leave_nothing_behind(fetcher, tmp_path, content, message):
    before = set(tmp_path.rglob("*"))
    with pytest.raises(FetchError, match=message):
        fetcher.fetch(packed(tmp_path, content, ["train.txt"]))
    new = {path.name for path in set(tmp_path.rglob("*")) - before if path.is_file()}
    assert new == {"packed", ".fetch.lock"}  # no member, no recorded hash


def test_a_symbolic_link_in_a_zip_is_refused(fetcher, tmp_path):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        info = zipfile.ZipInfo("train.txt")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(FetchError, match="no plain file"):
        fetcher.fetch(packed(tmp_path, buffer.getvalue(), ["train.txt"]))
    assert not raw(fetcher, "train.txt").exists()


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
