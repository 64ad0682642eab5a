import re

from hypothesis import assume, example, given
from hypothesis import strategies as st

from tickkeeper.schedules.identity import MAX_SCHEDULER_ID_BYTES, derive_offset_ms, derive_scheduler_id

NAMES = st.text(min_size=1, max_size=128)
# Near misses: what an escape that is not one-to-one would confuse.
TRICKY = st.text(alphabet="._-:a2eé/", min_size=1, max_size=6)
PAIRS = st.tuples(NAMES | TRICKY, NAMES | TRICKY)


@given(PAIRS, PAIRS)
@example(("mail.eu", "acme"), ("mail", "eu.acme"))
@example(("a_", "b"), ("a", "_b"))
@example(("a_2e", "b"), ("a.", "b"))
@example(("a__", "b"), ("a_", "_b"))
@example(("x" * 128, "é" * 128), ("x" * 128, "é" * 127 + "è"))
def test_two_pairs_never_share_an_id(one, other):
    assume(one != other)
    assert derive_scheduler_id(*one) != derive_scheduler_id(*other)


@given(TRICKY, TRICKY, TRICKY, TRICKY)
def test_two_tricky_pairs_never_share_an_id(job, tenant, other_job, other_tenant):
    assume((job, tenant) != (other_job, other_tenant))
    assert derive_scheduler_id(job, tenant) != derive_scheduler_id(other_job, other_tenant)


@given(PAIRS)
@example(("x" * 128, "y" * 126))  # one byte short of the bound
@example(("x" * 128, "." * 128))
@example(("😀" * 128, "😀" * 128))
def test_an_id_is_plain_bounded_and_always_the_same(pair):
    id_ = derive_scheduler_id(*pair)
    assert re.fullmatch(r"[A-Za-z0-9_.-]+", id_)
    assert len(id_) <= MAX_SCHEDULER_ID_BYTES
    assert id_ == derive_scheduler_id(*pair)


def test_plain_names_stay_readable():
    assert derive_scheduler_id("drain", "acme") == "drain.acme"
    assert derive_scheduler_id("mail-out", "org_42") == "mail-out.org__42"
    assert derive_scheduler_id("mail.eu", "a@b.c") == "mail_2eeu.a_40b_2ec"


def test_an_id_at_the_bound_is_whole_and_one_beyond_is_cut():
    whole = derive_scheduler_id("x" * 128, "y" * 126)
    assert len(whole) == 255
    assert whole == f"{'x' * 128}.{'y' * 126}"
    cut = derive_scheduler_id("x" * 128, "y" * 127)
    assert re.fullmatch(r"x{128}\.y{60}\.\.[0-9a-f]{64}", cut)


def test_a_cut_id_is_no_shorter_ones_own():
    # ".." comes from no escape: an id that was not cut never holds it.
    assert ".." not in derive_scheduler_id("..", "..")


@given(st.text(min_size=1, max_size=40), st.integers(10, 31_536_000_000))
def test_an_offset_is_a_phase_of_its_own_and_never_zero(uid, every):
    offset = derive_offset_ms(uid, every)
    assert 1 <= offset <= every
    assert offset == derive_offset_ms(uid, every)


def test_offsets_spread():
    offsets = {derive_offset_ms(f"uid-{number}", 5000) for number in range(1000)}
    assert len(offsets) > 800
