"""What a sample of the gauges costs in an outbox of millions of rows, of thousands of tenants very unlike in size."""

from benchmarks.keeper.result import Figure, Row
from benchmarks.lab.figures import median
from benchmarks.lab.progress import say
from benchmarks.outbox import table
from benchmarks.outbox.sample import samples
from benchmarks.outbox.sizes import Sizes
from benchmarks.outbox.stage import Stage
from embedded.errors import PartFailed

_PORTION = 250_000
_SAMPLES = 10

# The third power makes the first tenants large. One row in twenty is scheduled for later, one in a hundred is leased.
_FILL = """
INSERT INTO tickkeeper.outbox (tenant_id, kind, payload, payload_bytes, headers, max_attempts, available_at, created_at,
                               lease_id, lease_until)
SELECT 't' || floor(power(random(), 3) * %(tenants)s::int), 'bench.' || n %% 4, '{}', 2, '{}', 20,
       clock_timestamp() + CASE WHEN n %% 20 = 0 THEN interval '1 hour' ELSE interval '0' END, clock_timestamp(),
       CASE WHEN n %% 100 = 1 THEN gen_random_uuid() END,
       CASE WHEN n %% 100 = 1 THEN clock_timestamp() + interval '1 day' END
  FROM generate_series(1, %(rows)s::int) n
"""


def play(sizes: Sizes) -> Row:
    """Fill it once; ten samples a run."""
    row = Row("sampler", raw={"runs": []})
    with Stage(max_wal_size="1GB") as stage:
        for start in range(0, sizes.sampled, _PORTION):
            rows = min(_PORTION, sizes.sampled - start)
            stage.connection.execute(_FILL, {"tenants": sizes.sampled_tenants, "rows": rows})
            say(f"sampler: {start + rows} of {sizes.sampled} rows")
        table.settle(stage.connection)
        middle, longest = [], []
        for run in range(sizes.runs):
            say(f"sampler, run {run + 1} of {sizes.runs}")
            taken = samples(stage.dsn, _SAMPLES)
            if not taken[-1][1].get("ready"):
                raise PartFailed("the sampler saw no rows")
            waited = [each for each, _ in taken]
            middle.append(median(waited))
            longest.append(max(waited))
            row.raw["runs"].append({"waited_ms": waited, "last": _short(taken[-1][1])})
    what = f"a sample, {sizes.sampled} rows, {sizes.sampled_tenants} tenants"
    row.figures += [Figure(f"{what}: median", "ms", middle), Figure(f"{what}: longest", "ms", longest)]
    row.at_most("sampler", median(middle), "ms", 50, "a sample")
    return row


def _short(sample: dict[str, object]) -> dict[str, object]:
    """Without the list of tenants, but their number."""
    tenants = sample.get("tenants")
    return sample | {"tenants": len(tenants) if isinstance(tenants, tuple) else None}
