"""Only the explorer's own page may talk to it, and it loads nothing from elsewhere."""

from __future__ import annotations

import pytest

from ddcl.explorer.guards import LARGEST_BODY

ASKED = {"text": "my card"}


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8321", "127.0.0.1.evil.example", "", "[::1]:8321"])
def test_a_foreign_host_name_is_refused(client, host):
    for path in ("/", "/api/run", "/main.js"):
        found = client.get(path, headers={"host": host})
        assert found.status_code == 400
        assert found.json() == {"error": "this server answers to 127.0.0.1 and localhost only"}


@pytest.mark.parametrize("host", ["127.0.0.1:8321", "localhost:9000", "localhost"])
def test_its_own_names_are_served(client, host):
    assert client.get("/api/run", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1:8321", "http://127.0.0.1:9999"])
def test_a_foreign_origin_is_refused(client, origin):
    assert client.post("/api/explain", json=ASKED, headers={"origin": origin}).status_code == 403
    assert client.put("/api/prototypes/0/name", json={"name": "x"}, headers={"origin": origin}).status_code == 403


def test_a_foreign_page_is_refused_where_the_browser_says_so(client):
    assert client.get("/api/run", headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert client.get("/api/run", headers={"sec-fetch-site": "same-origin"}).status_code == 200
    assert client.get("/", headers={"sec-fetch-site": "cross-site"}).status_code == 200  # a link to the page


def test_its_own_origin_is_served(client):
    found = client.post("/api/explain", json=ASKED, headers={"origin": "http://127.0.0.1:8321"})
    assert found.status_code == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
def test_what_a_foreign_form_could_send_is_refused(client, kind):
    found = client.put("/api/prototypes/0/name", content=b'{"name": "x"}', headers={"content-type": kind})
    assert found.status_code == 415
    assert client.get("/api/run").json()["names"][0] is None


def test_nothing_is_written_by_get(client):
    assert client.get("/api/prototypes/0/name").status_code == 405
    assert client.get("/api/explain").status_code == 405


def test_a_request_that_is_too_long_is_refused(client):
    found = client.post("/api/explain", json={"text": "a" * LARGEST_BODY})
    assert found.status_code == 413
    assert client.post("/api/explain", json={"text": "é" * 100_000}).status_code == 200


@pytest.mark.parametrize("path", ["/", "/main.js", "/api/run", "/api/nothing", "/nothing.html"])
def test_every_answer_forbids_the_page_everything_foreign(client, path):
    headers = client.get(path).headers
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    "path", ["/../application.py", "/%2e%2e/application.py", "/..%2fapplication.py", "//etc/passwd", "/%2fetc/passwd"]
)
def test_no_path_leads_out_of_the_page_s_own_files(client, path):
    found = client.get(path)
    assert found.status_code == 404
    assert "import" not in found.text
    assert "root:" not in found.text
