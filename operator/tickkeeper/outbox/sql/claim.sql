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
-- Rows locked by a peer are passed over.
-- Index: outbox_due; the updates and deletes by primary key.
WITH kinds AS MATERIALIZED (
    SELECT unnest(%(kinds)s::text[]) AS kind
),
head AS MATERIALIZED (
    SELECT h.*
      FROM kinds k
     CROSS JOIN LATERAL (
        SELECT o.id, o.available_at, o.payload_bytes, o.attempts >= o.max_attempts AS spent,
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
         LIMIT %(limit)s
     ) c
     WHERE (SELECT NOT h.alone FROM head h) AND cardinality(%(kinds)s::text[]) > 1
     ORDER BY c.available_at, c.id
     LIMIT %(limit)s
),
quota AS MATERIALIZED (
    -- How many of each kind to take, so that no more rows are locked than taken.
    SELECT k.kind,
           CASE WHEN cardinality(%(kinds)s::text[]) = 1 THEN %(limit)s
                ELSE (SELECT count(*) FROM oldest a WHERE a.kind = k.kind) END AS rows
      FROM kinds k
     WHERE (SELECT NOT h.alone FROM head h)
),
batch AS MATERIALIZED (
    SELECT b.id, b.available_at, b.payload_bytes
      FROM quota q
     CROSS JOIN LATERAL (
        -- Two limits: the planner does not know how small the quota is, and would sort the whole kind.
        SELECT l.* FROM (
            SELECT o.id, o.available_at, o.payload_bytes
              FROM {schema}.outbox o
             WHERE o.tenant_id = %(tenant_id)s AND o.kind = q.kind
               AND o.available_at <= statement_timestamp()
               AND CASE WHEN o.lease_id IS NULL AND NOT o.suspect AND o.attempts + 1 < o.max_attempts THEN 1 ELSE 0 END > 0
             ORDER BY o.available_at, o.id
             LIMIT %(limit)s
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
      FROM (SELECT c.id, sum(c.payload_bytes) OVER (ORDER BY c.available_at, c.id) - c.payload_bytes AS before
              FROM (SELECT h.id, h.available_at, h.payload_bytes FROM head h WHERE NOT h.alone
                    UNION
                    SELECT b.id, b.available_at, b.payload_bytes FROM batch b
                     ORDER BY available_at, id
                     LIMIT %(limit)s) c) s
     WHERE s.before < %(max_bytes)s
),
taken AS (
    UPDATE {schema}.outbox
       SET attempts = attempts + 1,
           suspect = suspect OR lease_id IS NOT NULL,
           lease_id = %(lease_id)s,
           lease_until = clock_timestamp() + make_interval(secs => %(lease)s),
           dedup_freed = CASE WHEN dedup_key IS NULL THEN dedup_freed ELSE id END
     WHERE id = ANY (ARRAY(SELECT p.id FROM picked p))
    RETURNING id, kind, payload::text, headers::text, attempts, max_attempts, available_at, created_at, suspect,
              dedup_key, ordering_key
)
SELECT (SELECT count(*) FROM buried), (SELECT h.alone FROM head h), t.*
  FROM (SELECT 1) one LEFT JOIN taken t ON true
 ORDER BY t.available_at, t.id;


-- name: no_jit
-- Compiling a claim of many kinds takes 80 ms, running it 10. Its estimated cost alone decides, so this comes before.
SET LOCAL jit = off;


-- name: due_left
-- Whether any due row is left that no lease covers, asked after an empty claim: a peer's claim holds the head of each
-- kind for the moment in which it chooses among them.
-- Index: outbox_due, one descent per kind.
SELECT EXISTS (
    SELECT FROM unnest(%(kinds)s::text[]) AS k (kind)
     CROSS JOIN LATERAL (
        SELECT FROM {schema}.outbox o
         WHERE o.tenant_id = %(tenant_id)s AND o.kind = k.kind
           AND o.available_at <= statement_timestamp()
           AND coalesce(o.lease_until, '-infinity') <= statement_timestamp()
         ORDER BY o.available_at, o.id
         LIMIT 1
     ) h
);
