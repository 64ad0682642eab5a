"""Finding handlers."""

import sys
import types
from functools import partial, wraps

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tickkeeper.worker import handler
from tickkeeper.worker.handlers import HandlerError, Kinds, Registry, as_handler, handlers_of, load


def _module(name, **members):
    module = types.ModuleType(name)
    vars(module).update(members)
    return module


@pytest.fixture
def modules(monkeypatch):
    def add(name, **members):
        monkeypatch.setitem(sys.modules, name, _module(name, **members))
        return name

    return add


async def _async(row):
    pass


def _sync(row):
    pass


async def _with_connection(row, connection):
    pass


def test_marked_functions_are_found_once(modules):
    send = handler("mail.send", "mail.bounce", timeout=3)(_sync)
    name = modules("app.handlers", send=send, alias=send, other=_async)
    [found] = load([name], entry_point_group=None)
    assert found.call is send
    assert list(found.kinds) == ["mail.bounce", "mail.send"]
    assert found.timeout == 3
    assert not found.is_async


def test_async_is_told_apart_also_behind_wrappers():
    class Callable:
        async def __call__(self, row):
            pass

    for call in (_async, partial(_async), Callable()):
        assert as_handler(call, Kinds.of("a")).is_async
    assert not as_handler(_sync, Kinds.of("a")).is_async


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("no.such.module", "no.such.module: ModuleNotFoundError"),
        ("app.empty", "no function marked with @handler"),
        ("app.empty:missing", "AttributeError"),
        ("my_handlers.py", r"my_handlers\.py: must be a module's name, not a file's, such as my_handlers$"),
        ("./src/my_handlers.py", r"must be a module's name, not a file's, such as src\.my_handlers$"),
    ],
)
def test_a_module_that_cannot_be_used_is_named(modules, path, says):
    modules("app.empty", send=_sync_without_mark)
    with pytest.raises(HandlerError, match=says):
        load([path], entry_point_group=None)


def _sync_without_mark(row):
    pass


def test_entry_points_are_read(monkeypatch):
    marked = handler("from.entry")(lambda row: None)
    entry = types.SimpleNamespace(name="app", value="app:send", load=lambda: marked)
    monkeypatch.setattr("tickkeeper.worker.handlers.entry_points", lambda group: [entry] if group == "g" else [])
    [found] = load([], entry_point_group="g")
    assert "from.entry" in found.kinds


def test_a_broken_entry_point_is_named(monkeypatch):
    def broken():
        raise ImportError("no libfoo")

    entry = types.SimpleNamespace(name="app", value="app:send", load=broken)
    monkeypatch.setattr("tickkeeper.worker.handlers.entry_points", lambda group: [entry])
    with pytest.raises(HandlerError, match=r"entry point app = app:send: ImportError: no libfoo"):
        load([])


def test_two_handlers_of_one_kind_are_refused():
    registry = Registry([as_handler(_sync, Kinds.of("a", "b.*"), name="one")])
    with pytest.raises(HandlerError, match=r"kind 'a' has two handlers: one and two"):
        registry.add(as_handler(_async, Kinds.of("a"), name="two"))
    with pytest.raises(HandlerError, match=r"kind 'b\.\*' has two handlers"):
        registry.add(as_handler(_async, Kinds.of("b.*"), name="two"))


def test_exact_wins_then_the_longest_prefix():
    registry = Registry(
        as_handler(lambda row: None, Kinds.of(kind), name=kind) for kind in ("mail.send", "mail.*", "mail.bulk.*")
    )
    assert registry.find("mail.send").name == "mail.send"
    assert registry.find("mail.bounce").name == "mail.*"
    assert registry.find("mail.bulk.x").name == "mail.bulk.*"
    assert registry.find("mail") is None
    assert registry.find("mailer.x") is None
    assert len(registry) == 3


@pytest.mark.parametrize("kind", ["", "*", ".*", "a*", "a.*.b", "a.*.*", "x" * 129])
def test_kinds_that_are_neither_name_nor_pattern_are_refused(kind):
    with pytest.raises(HandlerError, match="kind "):
        handler(kind)


@pytest.mark.parametrize("timeout", [0, -1])
def test_a_timeout_must_be_positive(timeout):
    with pytest.raises(HandlerError, match="timeout must be more than 0"):
        handler("a", timeout=timeout)


@pytest.mark.parametrize("concurrency", [0, -1, 1.5, True])
def test_a_concurrency_must_be_a_count(concurrency):
    with pytest.raises(HandlerError, match=r"@handler\('a'\): concurrency must be a whole number of at least 1"):
        handler("a", concurrency=concurrency)


def test_a_transaction_needs_an_async_handler(modules):
    with pytest.raises(HandlerError, match="transaction=True needs an async def"):
        handler("a", transaction=True)(_sync)
    marked = handler("a", transaction=True, batch=True, concurrency=3)(_with_connection)
    [found] = load([modules("app.marked", marked=marked)], entry_point_group=None)
    assert (found.transaction, found.batch, found.concurrency) == (True, True, 3)


def test_a_handler_needs_a_kind():
    with pytest.raises(HandlerError, match="at least one kind"):
        handler()
    with pytest.raises(HandlerError, match=r'test_handlers\._sync: use @handler\("kind"\), not a bare @handler'):
        handler(_sync)
    with pytest.raises(HandlerError, match="kind 5: must be a string"):
        handler(5)


class _Sender:
    def send(self, row):
        pass

    def send_to(self, row, address):
        pass


@pytest.mark.parametrize(
    ("call", "options", "rule"),
    [
        (lambda: None, {}, r"takes \(\): must take \(row\), and a connection only with transaction=True"),
        (lambda row, connection: None, {}, r"takes \(row, connection\): must take \(row\)"),
        (lambda *, row: None, {}, r"takes \(\*, row\): must take \(row\)"),
        (lambda row, *, mailer: None, {}, r"takes \(row, \*, mailer\): must take \(row\)"),
        (lambda: None, {"batch": True}, r"takes \(\): must take \(rows\)"),
        (
            _async,
            {"transaction": True},
            r"_async takes \(row\): must take \(row, connection\), since it has transaction=",
        ),
        (_async, {"transaction": True, "batch": True}, r"must take \(rows, connection\)"),
        (_Sender().send_to, {}, r"_Sender\.send_to takes \(row, address\): must take \(row\)"),
    ],
)
def test_a_handler_that_cannot_be_called_is_refused_at_the_start(call, options, rule):
    function = getattr(call, "__func__", call)
    handler("a", **options)(function)
    try:
        with pytest.raises(HandlerError, match=rule):
            handlers_of(call, "app")
    finally:
        del vars(function)["__tickkeeper_handler__"]


def test_whatever_takes_a_row_is_a_handler():
    def decorated(function):
        @wraps(function)
        def give(*given):
            return function(*given, "mailer")

        return give

    calls = [
        lambda row: None,
        lambda row, mailer=None: None,
        lambda *rows, **options: None,
        decorated(lambda row, mailer: None),
        partial(lambda mailer, row: None, "mailer"),
    ]
    for call in calls:
        assert handlers_of(handler("a")(call), "app")
    handler("a")(_Sender.send)
    assert handlers_of(_Sender().send, "app")
    assert handlers_of(handler("a", transaction=True)(_with_connection), "app")


def test_kinds_that_nobody_handles_are_told_once():
    registry = Registry([as_handler(_sync, Kinds.of("mail.*"))])
    assert registry.newly_missed(["b", "mail.a", "a"]) == ["a", "b"]
    assert registry.newly_missed(["b", "c"]) == ["c"]
    many = registry.newly_missed(f"k{n}" for n in range(2000))
    assert len(many) == 997
    assert registry.newly_missed(["new"]) == []


_names = st.lists(st.sampled_from("ab"), min_size=1, max_size=3).map(".".join)
_kinds = st.lists(st.one_of(_names, _names.map(lambda name: f"{name}.*")), max_size=4).map(
    lambda names: Kinds.of(*names)
)


@given(_kinds, _kinds, _names)
def test_the_intersection_holds_exactly_what_both_hold(one, two, name):
    assert (name in (one & two)) == (name in one and name in two)
