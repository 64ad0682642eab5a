"""Which rows of a batch run together, which one after another, and what follows from a failure."""

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.worker.fakes import row
from tickkeeper.worker.gates import Gates
from tickkeeper.worker.handlers import Kinds, as_handler
from tickkeeper.worker.jobs import Jobs, rows_in
from tickkeeper.worker.outcome import DONE, RELEASED, failed


async def _call(*_arguments):
    pass


PLAIN = as_handler(_call, Kinds.of("plain"))
SLOW = as_handler(_call, Kinds.of("slow"), concurrency=2)
LISTS = as_handler(_call, Kinds.of("lists"), batch=True)
SAFE = as_handler(_call, Kinds.of("safe"), transaction=True)
SAFE_LISTS = as_handler(_call, Kinds.of("safe.lists"), batch=True, transaction=True)
HANDLERS = {next(iter(each.kinds)): each for each in (PLAIN, SLOW, LISTS, SAFE, SAFE_LISTS)}


def _jobs(*rows):
    return Jobs(rows, HANDLERS.__getitem__, Gates().of)


def _ids(line):
    return [[each.id for each in rows_in(job)] for job in line.waiting]


def test_plain_rows_share_a_line_and_a_bounded_handler_has_its_own():
    plain, slow = _jobs(row(1, "plain"), row(2, "slow"), row(3, "plain"), row(4, "slow")).lines()
    assert (_ids(plain), plain.gate) == ([[1], [3]], None)
    assert (_ids(slow), slow.gate.most) == ([[2], [4]], 2)


def test_a_batch_handler_gets_one_list_and_what_failed_before_comes_alone():
    [line] = _jobs(row(1, "lists"), row(2, "lists", attempts=2), row(3, "lists")).lines()
    assert sorted(_ids(line)) == [[1, 3], [2]]
    assert all(isinstance(argument, list) for _, argument in line.waiting)


def test_a_transactional_handler_gets_all_of_its_rows():
    [line] = _jobs(row(1, "safe"), row(2, "safe", attempts=5), row(3, "safe")).lines()
    assert line.transactional
    assert _ids(line) == [[1, 2, 3]]
    assert [_ids(line) for line in _jobs(row(1, "safe.lists"), row(2, "safe.lists")).lines()] == [[[1, 2]]]


def test_rows_of_one_key_follow_each_other():
    first, second = row(1, "plain", ordering_key="k"), row(2, "plain", ordering_key="k")
    jobs = _jobs(first, second, row(3, "plain"))
    [line] = jobs.lines()
    assert sorted(_ids(line)) == [[1], [3]]
    line.waiting.clear()
    assert jobs.judged(first, DONE) == ()
    assert _ids(line) == [[2]]
    assert jobs.judged(second, DONE) == ()


def test_a_failure_takes_the_rest_of_its_run_along():
    run = [row(n, "plain", ordering_key="k") for n in range(4)]
    jobs = _jobs(*run)
    [line] = jobs.lines()
    jobs.judged(run[0], DONE)
    line.waiting.clear()
    assert [each.id for each in jobs.judged(run[1], failed("no"))] == [2, 3]
    assert _ids(line) == []
    assert jobs.judged(run[1], RELEASED) == ()


def test_a_key_that_is_lost_is_not_gone_on_with():
    run = [row(n, "plain", ordering_key="k") for n in range(3)]
    jobs = _jobs(*run)
    jobs.lose(run[0])
    assert [each.id for each in jobs.judged(run[0], DONE)] == [1, 2]
    assert jobs.lost(run[2])


def test_a_run_of_several_handlers_goes_one_by_one_through_all_of_them():
    run = [row(1, "plain", ordering_key="k"), row(2, "lists", ordering_key="k"), row(3, "safe", ordering_key="k")]
    jobs = _jobs(*run)
    assert [_ids(line) for line in jobs.lines()] == [[[1]]]
    jobs.lines()[0].waiting.clear()
    jobs.judged(run[0], DONE)
    assert [_ids(line) for line in jobs.lines() if line.waiting] == [[[2]]]
    jobs.lines()[0].waiting.clear()
    jobs.judged(run[1], DONE)
    assert [(_ids(line), line.transactional) for line in jobs.lines() if line.waiting] == [([[3]], True)]


def test_a_run_of_one_batch_handler_stays_in_its_list():
    run = [row(n, "lists", ordering_key="k") for n in (1, 2)]
    assert [_ids(line) for line in _jobs(row(9, "lists"), *run).lines()] == [[[9, 1, 2]]]
    # The head failed before: it comes alone, and the rest must wait for it.
    late = [row(1, "lists", ordering_key="k", attempts=2), row(2, "lists", ordering_key="k")]
    assert [_ids(line) for line in _jobs(row(9, "lists"), *late).lines()] == [[[1], [9]]]


ROWS = st.lists(
    st.tuples(st.sampled_from(sorted(HANDLERS)), st.sampled_from([None, "a", "b"]), st.integers(1, 3), st.booleans()),
    max_size=25,
)


@given(ROWS)
def test_every_row_is_run_once_or_left_behind_a_failure_and_keys_keep_their_order(shapes):
    good = {number: fine for number, (*_, fine) in enumerate(shapes)}
    rows = [row(n, kind, ordering_key=key, attempts=attempts) for n, (kind, key, attempts, _) in enumerate(shapes)]
    jobs, ran, left = _jobs(*rows), [], []
    while lines := [line for line in jobs.lines() if line.waiting]:
        for line in lines:
            while line.waiting:
                job = line.waiting.popleft()
                for each in rows_in(job):
                    ran.append(each)
                    left += jobs.judged(each, DONE if good[each.id] else failed("no"))
    assert sorted(each.id for each in (*ran, *left)) == [each.id for each in rows]
    for key in ("a", "b"):
        order = [each.id for each in ran if each.ordering_key == key]
        assert order == sorted(order)
