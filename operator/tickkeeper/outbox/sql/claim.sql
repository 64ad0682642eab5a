-- name: claim
-- Lease due rows of one tenant, oldest first, and bury the row at the head when its attempts are used up.
--
-- The oldest due row decides. Used up (its last attempt gave no answer): it moves to outbox_dead, and nothing is taken.
-- Suspect, or on its last attempt: it is taken alone, so that a row which kills its worker takes no neighbour along,
-- and no row loses its last attempt to another's fault. Otherwise a batch of plain rows, up to limit and max_bytes.
--
-- Kinds by LATERAL, one ordered index range each: `kind = ANY` read through every row of the other kinds first.
-- `id = ANY (ARRAY(...))` and not a join: the planner turned UPDATE ... FROM into a sequential scan of the table.
-- statement_timestamp() in the search, since a volatile clock_timestamp() cannot bound an index range.
-- The filters by coalesce and CASE, which the planner has no statistics for: taken while most rows were leased they
-- said that hardly any row passes, and each claim then read and sorted a whole kind (110 ms for 10,000 rows, not 4).
-- Rows locked by a peer are passed over. What is paused counts as not asked for.
-- Of the rows of an ordering_key only the first can be due; it stands for the run behind it (query run), so it weighs as
-- many rows as such a run is thought to have. ask: how many rows to look at, fewer than limit where most weigh more.
-- Index: outbox_due; the updates and deletes by primary key.
WITH kinds AS MATERIALIZED (
    SELECT k.kind FROM unnest(%(kinds)s::text[]) AS k (kind)
     WHERE NOT EXISTS (SELECT FROM {schema}.outbox_pause p
                        WHERE p.tenant_id IN ('', %(tenant_id)s) AND p.kind IN ('', k.kind))
),
head AS MATERIALIZED (
    SELECT h.*
      FROM kinds k
     CROSS JOIN LATERAL (
        SELECT o.id, o.available_at, o.payload_bytes, o.ordering_key, o.attempts >= o.max_attempts AS spent,
               o.lease_id IS NOT NULL OR o.suspect OR o.attempts + 1 >= o.max_attempts AS alone
          FROM {schema}.outbox o
         WHERE o.tenant_id = %(tenant_id)s AND o.kind = k.kind
           AND o.available_at <= statement_timestamp()
           AND coalesce(o.lease_until, '-infinity') <= statement_timestamp()
         ORDER BY o.available_at, o.id
         LIMIT 1
           FOR UPDATE SKIP LOCKED
     ) h
     ORDER BY h.available_at, h.id
     LIMIT 1
),
gone AS (
    DELETE FROM {schema}.outbox WHERE id = ANY (ARRAY(SELECT h.id FROM head h WHERE h.spent))
    RETURNING *
),
blocked AS (
    INSERT INTO {schema}.outbox_block (id, tenant_id, ordering_key)
    SELECT g.id, g.tenant_id, g.ordering_key FROM gone g WHERE g.ordering_key IS NOT NULL AND %(block)s
),
buried AS (
    INSERT INTO {schema}.outbox_dead (id, tenant_id, kind, payload, payload_bytes, headers, dedup_key, ordering_key,
                                      attempts, max_attempts, created_at, reason, last_error)
    SELECT g.id, g.tenant_id, g.kind, g.payload, g.payload_bytes, g.headers, g.dedup_key, g.ordering_key,
           g.attempts, g.max_attempts, g.created_at, 'lost',
           left(format('attempt %%s of %%s gave no answer: its worker died, or was slower than its lease',
                       g.attempts, g.max_attempts) || coalesce('; before that: ' || g.last_error, ''), 4096)
      FROM gone g
    RETURNING id
),
oldest AS MATERIALIZED (
    -- The kinds of the oldest rows, one entry a row; not asked of a single kind.
    SELECT k.kind
      FROM kinds k
     CROSS JOIN LATERAL (
        SELECT o.available_at, o.id
          FROM {schema}.outbox o
         WHERE o.tenant_id = %(tenant_id)s AND o.kind = k.kind
           AND o.available_at <= statement_timestamp()
           AND CASE WHEN o.lease_id IS NULL AND NOT o.suspect AND o.attempts + 1 < o.max_attempts THEN 1 ELSE 0 END > 0
         ORDER BY o.available_at, o.id
         LIMIT %(ask)s
     ) c
     WHERE (SELECT NOT h.alone FROM head h) AND cardinality(%(kinds)s::text[]) > 1
     ORDER BY c.available_at, c.id
     LIMIT %(ask)s
),
quota AS MATERIALIZED (
    -- How many of each kind to take, so that no more rows are locked than taken.
    SELECT k.kind,
           CASE WHEN cardinality(%(kinds)s::text[]) = 1 THEN %(ask)s
                ELSE (SELECT count(*) FROM oldest a WHERE a.kind = k.kind) END AS rows
      FROM kinds k
     WHERE (SELECT NOT h.alone FROM head h)
),
batch AS MATERIALIZED (
    SELECT b.id, b.available_at, b.payload_bytes, b.ordering_key
      FROM quota q
     CROSS JOIN LATERAL (
        -- Two limits: the planner does not know how small the quota is, and would sort the whole kind.
        SELECT l.* FROM (
            SELECT o.id, o.available_at, o.payload_bytes, o.ordering_key
              FROM {schema}.outbox o
             WHERE o.tenant_id = %(tenant_id)s AND o.kind = q.kind
               AND o.available_at <= statement_timestamp()
               AND CASE WHEN o.lease_id IS NULL AND NOT o.suspect AND o.attempts + 1 < o.max_attempts THEN 1 ELSE 0 END > 0
             ORDER BY o.available_at, o.id
             LIMIT %(ask)s
               FOR UPDATE SKIP LOCKED
        ) l
        LIMIT q.rows
     ) b
),
picked AS (
    SELECT h.id FROM head h WHERE h.alone AND NOT h.spent
    UNION ALL
    -- The head is among them even where the quota was spent on rows that a peer holds: whoever finds a row gets one.
    -- The first row always fits: a payload of any size has its turn.
    SELECT s.id
      FROM (SELECT c.id, sum(c.payload_bytes) OVER w - c.payload_bytes AS before, sum(c.weight) OVER w - c.weight AS load
              FROM (SELECT h.id, h.available_at, h.payload_bytes,
                           CASE WHEN h.ordering_key IS NULL THEN 1 ELSE %(weight)s::float8 END AS weight
                      FROM head h
                     WHERE NOT h.alone AND NOT EXISTS (SELECT FROM batch b WHERE b.id = h.id)
                    UNION ALL
                    SELECT b.id, b.available_at, b.payload_bytes,
                           CASE WHEN b.ordering_key IS NULL THEN 1 ELSE %(weight)s::float8 END
                      FROM batch b
                     ORDER BY available_at, id
                     LIMIT %(ask)s) c
            WINDOW w AS (ORDER BY c.available_at, c.id)) s
     WHERE s.before < %(max_bytes)s AND s.load < %(limit)s
),
taken AS (
    UPDATE {schema}.outbox
       SET attempts = attempts + 1,
           suspect = suspect OR lease_id IS NOT NULL,
           lease_id = %(lease_id)s,
           lease_until = clock_timestamp() + make_interval(secs => %(lease)s),
           dedup_freed = CASE WHEN dedup_key IS NULL THEN dedup_freed ELSE id END
     WHERE id = ANY (ARRAY(SELECT p.id FROM picked p))
    RETURNING id, kind, payload::text, nullif(headers, '{{}}')::text, attempts, max_attempts,
              greatest(available_at, '0002-01-01+00') AS available_at,
              least(greatest(created_at, '0002-01-01+00'), '9998-12-31+00') AS created_at, suspect, dedup_key, ordering_key
)
SELECT (SELECT count(*) FROM buried), (SELECT h.alone FROM head h), t.*
  FROM (SELECT 1) one LEFT JOIN taken t ON true
 ORDER BY t.available_at, t.id;


-- name: claim_plain
-- The same where the first rows of a single kind are all plain, have no ordering_key and stay within max_bytes, which is
-- what most claims find: it costs the server a third less. Otherwise nothing is taken, and one record without an id says
-- why: 'not plain', or 'held' where rows are due and others have locked all of them, for a moment or to take them.
-- Only rows behind a place in the order are looked for; '-infinity' and 0 stand before all. 'held' looks at all.
-- In no order: whoever asked sorts the records. What is the same for all of them is not told.
-- By its place (ctid) a row is found without its index. It has not moved: this statement has locked it there. A row that
-- somebody changed between the snapshot and the lock is not seen at its new place, and left to the next claim.
-- Index: outbox_due.
WITH pause AS MATERIALIZED (
    SELECT NOT EXISTS (SELECT FROM {schema}.outbox_pause p
                        WHERE p.tenant_id IN ('', %(tenant_id)s) AND p.kind IN ('', %(kind)s)) AS none
),
batch AS MATERIALIZED (
    SELECT o.ctid AS place, o.payload_bytes,
           o.ordering_key IS NULL AND o.lease_id IS NULL AND NOT o.suspect AND o.attempts + 1 < o.max_attempts AS plain
      FROM {schema}.outbox o
     WHERE o.tenant_id = %(tenant_id)s AND o.kind = %(kind)s
       AND (o.available_at, o.id) > (%(behind_at)s::timestamptz, %(behind_id)s::bigint)
       AND o.available_at <= statement_timestamp()
       AND coalesce(o.lease_until, '-infinity') <= statement_timestamp()
       AND (SELECT p.none FROM pause p)
     ORDER BY o.available_at, o.id
     LIMIT %(limit)s
       FOR UPDATE SKIP LOCKED
),
verdict AS MATERIALIZED (
    SELECT count(*) AS rows, bool_and(b.plain) AND sum(b.payload_bytes) <= %(max_bytes)s AS fits FROM batch b
),
taken AS (
    UPDATE {schema}.outbox
       SET attempts = attempts + 1,
           lease_id = %(lease_id)s,
           lease_until = clock_timestamp() + make_interval(secs => %(lease)s),
           dedup_freed = CASE WHEN dedup_key IS NULL THEN dedup_freed ELSE id END
     WHERE ctid = ANY (ARRAY(SELECT b.place FROM batch b WHERE (SELECT v.fits FROM verdict v)))
    RETURNING id, payload::text, nullif(headers, '{{}}')::text, attempts, max_attempts,
              greatest(available_at, '0002-01-01+00') AS available_at,
              least(greatest(created_at, '0002-01-01+00'), '9998-12-31+00') AS created_at, dedup_key
)
SELECT * FROM taken
UNION ALL
SELECT NULL, CASE WHEN v.fits IS FALSE THEN 'not plain' ELSE 'held' END, NULL, NULL, NULL, NULL, NULL, NULL
  FROM verdict v
 WHERE NOT EXISTS (SELECT FROM taken)
   AND (v.rows > 0 OR EXISTS (
        SELECT FROM (
            -- In the index' order: else the planner may look for any row by reading the table.
            SELECT FROM {schema}.outbox o
             WHERE o.tenant_id = %(tenant_id)s AND o.kind = %(kind)s
               AND o.available_at <= statement_timestamp()
               AND coalesce(o.lease_until, '-infinity') <= statement_timestamp()
               AND (SELECT p.none FROM pause p)
             ORDER BY o.available_at, o.id
             LIMIT 1
        ) due));


-- name: no_jit
-- Compiling a claim of many kinds takes 80 ms, running it 10. Its estimated cost alone decides, so this comes before.
SET LOCAL jit = off;


-- name: run
-- Lease the rows behind those first rows of ordering keys that a claim has just leased: of each key up to share rows, in
-- the order of their ids, without a gap: up to the first that is not plain, not due, not of a kind asked for, or locked.
-- Nobody else leases them meanwhile, since claims find first rows only.
-- Index: outbox_run; the updates by primary key.
WITH kinds AS MATERIALIZED (
    SELECT k.kind FROM unnest(%(kinds)s::text[]) AS k (kind)
     WHERE NOT EXISTS (SELECT FROM {schema}.outbox_pause p
                        WHERE p.tenant_id IN ('', %(tenant_id)s) AND p.kind IN ('', k.kind))
),
heads AS MATERIALIZED (
    SELECT o.id, o.ordering_key, h.place
      FROM unnest(%(heads)s::bigint[]) WITH ORDINALITY AS h (id, place)
      JOIN {schema}.outbox o ON o.id = h.id AND o.lease_id = %(lease_id)s
),
behind AS MATERIALIZED (
    SELECT h.place, h.ordering_key, r.id, r.payload_bytes, r.plain
      FROM heads h
     CROSS JOIN LATERAL (
        SELECT o.id, o.payload_bytes,
               o.due_at <= statement_timestamp() AND o.lease_id IS NULL AND NOT o.suspect
               AND o.attempts + 1 < o.max_attempts AND o.kind IN (SELECT k.kind FROM kinds k) AS plain
          FROM {schema}.outbox o
         WHERE o.tenant_id = %(tenant_id)s AND o.ordering_key = h.ordering_key AND o.id > h.id
         ORDER BY o.id
         LIMIT %(share)s
     ) r
),
locked AS MATERIALIZED (
    SELECT o.id FROM {schema}.outbox o
     WHERE o.id = ANY (ARRAY(SELECT b.id FROM behind b WHERE b.plain)) AND o.lease_id IS NULL
       FOR UPDATE SKIP LOCKED
),
whole AS (
    SELECT b.id, b.place, b.payload_bytes,
           bool_and(coalesce(b.plain, false) AND l.id IS NOT NULL) OVER (PARTITION BY b.place ORDER BY b.id) AS fits
      FROM behind b LEFT JOIN locked l ON l.id = b.id
),
picked AS (
    SELECT s.id
      FROM (SELECT w.id, row_number() OVER o AS number, sum(w.payload_bytes) OVER o - w.payload_bytes AS before
              FROM whole w WHERE w.fits
            WINDOW o AS (ORDER BY w.place, w.id)) s
     WHERE s.number <= %(room)s AND s.before < %(max_bytes)s
),
taken AS (
    UPDATE {schema}.outbox
       SET attempts = attempts + 1,
           lease_id = %(lease_id)s,
           lease_until = clock_timestamp() + make_interval(secs => %(lease)s),
           dedup_freed = CASE WHEN dedup_key IS NULL THEN dedup_freed ELSE id END
     WHERE id = ANY (ARRAY(SELECT p.id FROM picked p))
    RETURNING id, kind, payload::text, nullif(headers, '{{}}')::text, attempts, max_attempts,
              greatest(due_at, '0002-01-01+00'),
              least(greatest(created_at, '0002-01-01+00'), '9998-12-31+00'), suspect, dedup_key, ordering_key
)
SELECT t.* FROM taken t ORDER BY t.id;


-- name: fence
-- A row that was first of its ordering_key was claimed anew after its lease had run out: the rows behind it that are
-- leased still belong to the same lost run. They are taken from it, and are suspects as it was.
-- Index: outbox_run; the update by primary key.
WITH behind AS MATERIALIZED (
    SELECT r.id
      FROM {schema}.outbox h
     CROSS JOIN LATERAL (
        SELECT o.id, o.lease_id
          FROM {schema}.outbox o
         WHERE o.tenant_id = h.tenant_id AND o.ordering_key = h.ordering_key AND o.id > h.id
         ORDER BY o.id
         LIMIT %(most)s
     ) r
     WHERE h.id = ANY (%(heads)s::bigint[]) AND h.lease_id = %(lease_id)s AND r.lease_id IS NOT NULL
),
mine AS MATERIALIZED (
    SELECT o.id FROM {schema}.outbox o
     WHERE o.id = ANY (ARRAY(SELECT b.id FROM behind b)) AND o.lease_id IS NOT NULL
     ORDER BY o.id
       FOR UPDATE
),
taken AS (
    UPDATE {schema}.outbox SET lease_id = NULL, lease_until = NULL, suspect = true
     WHERE id = ANY (ARRAY(SELECT m.id FROM mine m))
    RETURNING id
)
SELECT count(*) FROM taken;


-- name: checks
-- Look after keys that were noted, each under its lock: the oldest notes behind the id above, as many keys as there is time
-- for (a key may wait for a moment), one at least. Returns how many notes were done with (the others wait for somebody's
-- transaction), and the id behind which to go on; NULL where no note is left behind these.
-- Index: the primary key, or outbox_key_check_key; in outbox_mend outbox_head, outbox_run and outbox_block_key.
WITH noted AS MATERIALIZED (
    SELECT c.id, c.tenant_id, c.ordering_key FROM {schema}.outbox_key_check c
     WHERE (%(tenant_id)s::text IS NULL OR c.tenant_id = %(tenant_id)s) AND c.id > %(above)s
     ORDER BY c.id
     LIMIT %(limit)s
       FOR UPDATE SKIP LOCKED
),
keys AS MATERIALIZED (
    SELECT n.tenant_id, n.ordering_key, min(n.id) AS id FROM noted n GROUP BY 1, 2 ORDER BY 3
),
mended AS MATERIALIZED (
    SELECT k.tenant_id, k.ordering_key, k.id,
           CASE WHEN clock_timestamp() <= statement_timestamp() + make_interval(secs => %(seconds)s)
                  OR k.id = (SELECT min(n.id) FROM noted n)
                THEN {schema}.outbox_mend(k.tenant_id, k.ordering_key) END AS done
      FROM keys k
),
gone AS (
    DELETE FROM {schema}.outbox_key_check
     WHERE id = ANY (ARRAY(SELECT n.id FROM noted n JOIN mended m USING (tenant_id, ordering_key) WHERE m.done))
    RETURNING id
)
SELECT (SELECT count(*) FROM gone),
       coalesce((SELECT min(m.id) - 1 FROM mended m WHERE m.done IS NULL),
                (SELECT CASE WHEN count(*) = %(limit)s THEN max(n.id) END FROM noted n));


-- name: due_left
-- Whether any due row is left that no lease covers, asked after an empty claim: a peer's claim holds the head of each
-- kind for the moment in which it chooses among them.
-- Index: outbox_due, one descent per kind.
SELECT EXISTS (
    SELECT FROM (
        SELECT u.kind FROM unnest(%(kinds)s::text[]) AS u (kind)
         WHERE NOT EXISTS (SELECT FROM {schema}.outbox_pause p
                            WHERE p.tenant_id IN ('', %(tenant_id)s) AND p.kind IN ('', u.kind))
     ) k
     CROSS JOIN LATERAL (
        SELECT FROM {schema}.outbox o
         WHERE o.tenant_id = %(tenant_id)s AND o.kind = k.kind
           AND o.available_at <= statement_timestamp()
           AND coalesce(o.lease_until, '-infinity') <= statement_timestamp()
         ORDER BY o.available_at, o.id
         LIMIT 1
     ) h
);
