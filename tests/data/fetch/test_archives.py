"""Archives: the wanted members are unpacked, hostile and damaged ones leave nothing behind."""

import gzip
import io
import tarfile
import zipfile

import pytest

from meshrec.data.fetch.errors import FetchError
from support.downloads import CONTENT, raw, source


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
