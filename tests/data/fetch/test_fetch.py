"""Downloads from a real server that misbehaves: what lands, what is said, and what the next call does."""

import json
import shutil
import ssl
import subprocess
import threading

import pytest

from meshrec.data.fetch.errors import FetchError
from support.bad_server import PAGE, Site, serving
from support.downloads import CONTENT, FAST, SHA256, fails, partial, raw, source, whole


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


def test_ranges_that_are_answered_in_parts_are_put_together(fetcher, site):
    site.cut_after, site.most_of_range = [1_000_000], 700_000
    whole(fetcher, source(site.url))
    assert site.offsets == [0, 1_000_000, 1_700_000, 2_400_000]


def test_a_range_from_elsewhere_is_refused(fetcher, site):
    site.cut_after, site.range_shift = [1_000_000], 1
    fails(fetcher, source(site.url), "asked for the bytes from 1000000, it answers with 'bytes 1000001-2999999/3000000'")


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


@pytest.mark.parametrize(
    ("page", "kind"),
    [(PAGE, "application/octet-stream"), (b"please log in", "Text/HTML; charset=utf-8"), (b"\n <HTML>", "x/y")],
)
def test_a_web_page_is_not_the_file(fetcher, site, page, kind):
    site.page, site.page_type = page, kind
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


@pytest.fixture
def tls(tmp_path, monkeypatch):
    """A certificate for loopback, which clients are told to trust in the way in which clusters tell them."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes a certificate, is not installed")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    request = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    request += ["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(request, check=True, capture_output=True)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


def test_encrypted_addresses_are_not_left_for_plain_ones(fetcher, site, tls):
    with serving(Site(CONTENT), tls) as encrypted:
        whole(fetcher, source(encrypted.url))
        raw(fetcher).unlink()
        encrypted.redirect = site.url
        fails(fetcher, source(encrypted.url, sha256=None), "redirects to http://.*, which isn't encrypted")


def test_a_certificate_that_nobody_vouches_for_is_refused(fetcher, tls, monkeypatch):
    monkeypatch.delenv("REQUESTS_CA_BUNDLE")
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with serving(Site(CONTENT), tls) as encrypted:
        fails(fetcher, source(encrypted.url), "can't be reached: .*certificate verify failed")


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


def test_a_server_that_never_agrees_with_itself_is_given_up(fetcher, site):
    """It promises more than it has, and then knows nothing of the length."""
    site.said_length, site.vague = 3_001_000, True
    fails(fetcher, source(site.url), "without getting further")
    assert len(site.offsets) < 8


def test_a_server_that_cuts_anywhere_and_ignores_ranges_is_given_up(fetcher, site):
    site.ranges, site.cut_after = False, [1000, 500, 600, 400] * 10
    fails(fetcher, source(site.url), "without getting further")
    assert len(site.offsets) == 1 + FAST.attempts - 1


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
