"""The routes file: what it takes, and how it says what is wrong."""

import json
import re

import pytest

from tickkeeper.worker.routes import RoutesError, key_of, read_routes


@pytest.fixture
def write(tmp_path):
    def _write(text, name="routes.yaml"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return _write


def test_yaml_with_everything(write, tmp_path):
    (tmp_path / "key").write_text("from-file\n")
    path = write(
        f"""
routes:
  - kinds: mail.*
    url: https://mail.example/hooks?x=1
    secretEnv: MAIL_KEY
    timeoutMs: 500
    headers: {{X-Team: growth}}
  - kinds: [sms.send, sms.flash]
    url: http://user:pw@[::1]:8080/sms
    secretFile: {tmp_path / "key"}
"""
    )
    [(mail, mail_key), (sms, sms_key)] = read_routes(path, environment={"MAIL_KEY": "k1"})
    assert (mail.kinds, mail.timeout_ms, mail.headers, mail_key) == (("mail.*",), 500, {"X-Team": "growth"}, b"k1")
    assert mail.where == "https://mail.example/hooks"
    assert sms.where == "http://[::1]:8080/sms"
    assert sms_key == b"from-file"
    assert "pw" not in repr(sms)


def test_json_too(write):
    path = write('{"routes": [{"kinds": "a", "url": "http://h/"}]}', "routes.json")
    assert read_routes(path)[0][0].kinds == ("a",)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "file: must be a mapping with the key `routes`"),
        ("[]", "file: must be a mapping with the key `routes`"),
        ("{}", "routes: is missing"),
        ("routes: []", "routes: must have at least 1 route"),
        ("routs: []", "routes: is missing"),
        ("routes:\n - url: http://h/", "routes.0.kinds: is missing"),
        ("routes:\n - {kinds: a, url: ftp://h/}", "routes.0.url: must be http://host/… or https://host/…"),
        ("routes:\n - {kinds: a, url: 'http://u:hunter2@:1/'}", "routes.0.url: must be http://host/…"),
        ("routes:\n - {kinds: a, url: 'http://h:99999/'}", "routes.0.url: must be a URL"),
        ("routes:\n - {kinds: a, url: 'http://h/a b'}", "routes.0.url: must have no spaces"),
        ("routes:\n - {kinds: 'a*', url: http://h/}", "routes.0.kinds: kind 'a*': '*' is allowed only at the end"),
        ("routes:\n - {kinds: [], url: http://h/}", "routes.0.kinds: must have at least 1 kind"),
        ("routes:\n - {kinds: a, url: http://h/, timeoutMs: 5}", "routes.0.timeoutMs: must be at least 100, not 5"),
        ("routes:\n - {kinds: a, url: http://h/, timeoutMs: x}", "routes.0.timeoutMs: must be a whole number, not 'x'"),
        ("routes: {}", "routes: must be a list"),
        ("routes:\n - {kinds: 5, url: http://h/}", "routes.0.kinds: must be a list"),
        ("routes:\n - {kinds: 'a ', url: http://h/}", "routes.0.kinds: kind 'a ': must have no space around it"),
        ("routes:\n - {kinds: a, url: 'https://${HOST}/x'}", "routes.0.url: must be http://host/…"),
        ("routes:\n - {kinds: a, url: 'http://a..b/'}", "routes.0.url: must be http://host/…"),
        ("routes:\n - {kinds: a, url: 'http://h:0/'}", "routes.0.url: must be http://host/…"),
        ("routes:\n - {kinds: a, url: http://h/, headers: {a: x, A: y}}", "routes.0.headers: a and A are one header"),
        (
            "routes:\n - {kinds: a, url: http://h/, headersEnv: {a: hunter-2}}",
            "routes.0.headersEnv.a: must be the name of",
        ),
        (
            "routes:\n - {kinds: a, url: http://h/, headersEnv: {a: NOPE}}",
            "routes.0.headersEnv.a: NOPE is not set or empt",
        ),
        (
            "routes:\n - {kinds: a, url: http://h/, headersEnv: {webhook-id: A}}",
            "routes.0.headersEnv: webhook-id is set",
        ),
        (
            "routes:\n - {kinds: a, url: http://h/, headers: {a: x}, headersEnv: {A: B}}",
            "routes.0: headers and headersEnv: a is in both, must be in one of them",
        ),
        (
            "routes:\n - {kinds: a, url: http://u:hunter2@h/, headersEnv: {Authorization: A}}",
            "routes.0: url has credentials, and there is a header Authorization",
        ),
        (
            "routes:\n - {kinds: a, url: http://h/, secretEnv: whsec_hunter2=}",
            "routes.0.secretEnv: must be the name of",
        ),
        ("routes:\n - {kinds: a, url: http://h/, secretEnv: }", "routes.0: secretEnv is empty"),
        ("routes:\n - {kinds: a, url: http://h/, secretEnv: ''}", "routes.0.secretEnv: must be the name of"),
        ("routes:\n - {kinds: a, url: http://h/, secretFile: ''}", "routes.0: secretFile is empty"),
        (
            "routes:\n - {kinds: a, url: 'http://u:hunter2@h/', headers: {authorization: x}}",
            "routes.0: url has credentials, and there is a header Authorization",
        ),
        ('routes:\n - {kinds: a, url: http://h/, secretFile: "/a\\0b"}', "routes.0.secretFile: /a\0b cannot be read"),
        (
            "routes:\n - {kinds: a, url: http://h/, timeout: 5}",
            "routes.0.timeout: unknown field; known here: headers, headersEnv, kinds, secretEnv,",
        ),
        ("routes:\n - {kinds: a, url: http://h/}\nroute: 1", "route: unknown field; known here: routes"),
        (
            "routes:\n - {kinds: a, url: http://h/, headers: {Webhook-Id: x}}",
            "routes.0.headers: Webhook-Id is set with each request: must be none of content-length, content-type,",
        ),
        ("routes:\n - {kinds: a, url: http://h/, headers: {content-Type: x}}", "routes.0.headers: content-Type is set"),
        ("routes:\n - {kinds: a, url: http://h/, headers: {Idempotency-Key: x}}", "routes.0.headers: Idempotency-Key"),
        ("routes:\n - {kinds: a, url: http://h/, headers: {'a b': c}}", "routes.0.headers.a b: "),
        ('routes:\n - {kinds: a, url: http://h/, headers: {a: "x\\r\\ny"}}', "routes.0.headers.a: "),
        ("routes:\n - {kinds: a, url: http://h/, secretEnv: A, secretFile: b}", "routes.0: secretEnv and secretFile"),
        ("routes:\n - {kinds: a, url: http://h/, secretEnv: NOPE}", "routes.0.secretEnv: NOPE is not set or empty"),
        ("routes:\n - {kinds: a, url: http://h/, secretFile: /nope}", "routes.0.secretFile: /nope cannot be read"),
        ("routes: [", "is neither YAML nor JSON: line 1"),
    ],
)
def test_a_fault_names_its_field(write, text, fault):
    with pytest.raises(RoutesError) as caught:
        read_routes(write(text), environment={})
    assert re.sub(r" \(line \d+\)", "", caught.value.faults[0]).startswith(fault)
    assert "hunter2" not in str(caught.value)


def test_a_fault_names_its_line(write):
    path = write("routes:\n  - kinds: a\n    url: http://h/\n  - kinds: b\n    url: ftp://h/\n    timeoutMs: 5\n")
    with pytest.raises(RoutesError) as caught:
        read_routes(path, environment={})
    assert [fault.partition(":")[0] for fault in caught.value.faults] == [
        "routes.1.url (line 5)",
        "routes.1.timeoutMs (line 6)",
    ]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            "routes:\n - kinds: a\n   url: http://h/\n   url: http://i/",
            "line 4: key 'url' is given twice, first on line 3",
        ),
        ("routes: []\nroutes: []", "line 2: key 'routes' is given twice, first on line 1"),
        ("a: &a [*a]\nb: *a\nb: 1", "line 3: key 'b' is given twice"),
        ("[" * 5_000, "is nested too deeply"),
        ("routes: 2024-13-45", "cannot be read: month must be in 1..12"),
        ("routes:\n\t- kinds: a", "is neither YAML nor JSON: line 2"),
    ],
)
def test_a_text_that_says_something_else_than_meant_is_refused(write, text, fault):
    with pytest.raises(RoutesError) as caught:
        read_routes(write(text), environment={})
    assert caught.value.faults[0].startswith(fault)


def test_json_is_read_as_strictly(write):
    double = '{"routes": [], "routes": []}'
    assert json.loads(double)
    for text, fault in ((double, "key 'routes' is given twice"), ("[" * 100_000, "is nested too deeply")):
        with pytest.raises(RoutesError) as caught:
            read_routes(write(text, "routes.json"), environment={})
        assert caught.value.faults == [fault]


def test_anchors_are_as_yaml_has_them(write):
    text = "x: &x {timeoutMs: 500}\nroutes: []"
    with pytest.raises(RoutesError, match="unknown field"):
        read_routes(write(text), environment={})
    text = "routes:\n - &r {kinds: a, url: http://h/, timeoutMs: 500}\n - {<<: *r, kinds: b}"
    assert [route.timeout_ms for route, _ in read_routes(write(text))] == [500, 500]


def test_a_header_may_come_from_the_environment(write):
    text = "routes:\n - {kinds: a, url: http://h/, headers: {x-team: growth}, headersEnv: {Authorization: TOKEN}}"
    [(route, _)] = read_routes(write(text), environment={"TOKEN": "Bearer hunter2\n"})
    assert route.headers == {"x-team": "growth", "Authorization": "Bearer hunter2"}
    assert "hunter2" not in repr(route)


@pytest.mark.parametrize("value", ["hunter2\r\nx: y", "hunter2 é", "hunter2" * 2_000, "hunter2\udce9"])
def test_a_value_that_no_header_can_have_is_refused_and_not_shown(write, value):
    text = "routes:\n - {kinds: a, url: http://h/, headersEnv: {Authorization: TOKEN}, secretEnv: KEY}"
    with pytest.raises(RoutesError) as caught:
        read_routes(write(text), environment={"TOKEN": value})
    assert caught.value.faults == [
        "routes.0.secretEnv: KEY is not set or empty",
        "routes.0.headersEnv.Authorization: TOKEN must be at most 8192 printable ASCII characters",
    ]


def test_a_key_that_is_no_text_is_a_key(write):
    [(_, key)] = read_routes(
        write("routes:\n - {kinds: a, url: http://h/, secretEnv: KEY}"), environment={"KEY": "caf\udce9"}
    )
    assert key == b"caf\xe9"


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("plain", b"plain"),
        ("plain\n", b"plain"),
        ("plain\r\n", b"plain"),
        (" spaces stay ", b" spaces stay "),
        ("whsec_aHVudGVyMg==", b"hunter2"),
        ("whsec_aHVudGVyMg==\n", b"hunter2"),
        ("WHSEC_aHVudGVyMg==", b"WHSEC_aHVudGVyMg=="),
    ],
)
def test_a_key_is_its_bytes_or_what_whsec_encodes(text, key):
    assert key_of(text.encode()) == key


@pytest.mark.parametrize("text", ["whsec_", "whsec_hunter2!", "whsec_hunter2", "whsec_hunt er2x", "whsec_hunter2-"])
def test_a_whsec_key_that_is_none_is_refused_and_not_shown(write, tmp_path, text):
    (tmp_path / "key").write_text(text)
    fields = (("secretEnv: KEY", "secretEnv: KEY"), ("secretFile: key", f"secretFile: {tmp_path / 'key'}"))
    for given, told in fields:
        with pytest.raises(RoutesError) as caught:
            read_routes(write(f"routes:\n - {{kinds: a, url: http://h/, {given}}}"), environment={"KEY": text})
        [fault] = caught.value.faults
        assert fault == (f"routes.0.{told} begins with whsec_: must be base64 behind it, as Standard Webhooks has it")


def test_a_key_file_is_looked_for_beside_the_file_of_routes(write, tmp_path, monkeypatch):
    monkeypatch.chdir("/")
    (tmp_path / "key").write_text("beside\n")
    [(_, key)] = read_routes(write("routes:\n - {kinds: a, url: http://h/, secretFile: key}"), environment={})
    assert key == b"beside"


def test_every_fault_is_told(write):
    with pytest.raises(RoutesError) as caught:
        read_routes(write("routes:\n - {url: http://h/}\n - {kinds: a}"))
    assert [fault.split(":")[0] for fault in caught.value.faults] == [
        "routes.0.kinds (line 2)",
        "routes.1.url (line 3)",
    ]


def test_an_absent_file_is_named(tmp_path):
    with pytest.raises(RoutesError, match="cannot be read: No such file"):
        read_routes(tmp_path / "nope.yaml")
