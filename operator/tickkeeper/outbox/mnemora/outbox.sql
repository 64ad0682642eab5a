-- mnemora's table `outbox`: its rules, with the database's clock. {schema} is put in by the program, quoted.
--
-- A row is open while completed_at and failed_at are both null. It is held while claimed_at lies less than the claimer's
-- lease back; whoever claims judges that by a lease of its own. Its own fencing token is `attempts`. Ours is claimed_by,
-- which is new with each claim of ours and overwritten by each claim of a peer: as strict, and one value for a batch.
-- attempts is therefore never counted down, also where a row is handed back unhandled: a peer whose lease ran out long
-- ago could meet its own old number again.

-- name: claim
-- Open and due rows of one tenant, oldest first, that nobody holds.
--
-- The oldest decides. Where its lease ran out it may have killed its worker: it comes alone, and due from now, so that a
-- row that never ends does not stand at the head of the queue for ever. Otherwise a batch of rows not yet claimed.
-- Index: idx_outbox_claimable (tenant_id, available_at) of open rows.
WITH head AS MATERIALIZED (
    SELECT o.id, o.claimed_at IS NOT NULL AS again
      FROM {schema}.outbox o
     WHERE o.tenant_id = %(tenant_id)s AND o.kind = ANY (%(kinds)s::text[])
       AND o.completed_at IS NULL AND o.failed_at IS NULL
       AND o.available_at <= statement_timestamp()
       AND (o.claimed_at IS NULL OR o.claimed_at <= statement_timestamp() - make_interval(secs => %(lease)s))
     ORDER BY o.available_at, o.id
     LIMIT 1
       FOR UPDATE SKIP LOCKED
),
batch AS MATERIALIZED (
    SELECT o.id
      FROM {schema}.outbox o
     WHERE o.tenant_id = %(tenant_id)s AND o.kind = ANY (%(kinds)s::text[])
       AND o.completed_at IS NULL AND o.failed_at IS NULL
       AND o.available_at <= statement_timestamp()
       AND o.claimed_at IS NULL
       AND (SELECT NOT h.again FROM head h)
     ORDER BY o.available_at, o.id
     LIMIT %(limit)s
       FOR UPDATE SKIP LOCKED
),
taken AS (
    UPDATE {schema}.outbox o
       SET claimed_at = clock_timestamp(), claimed_by = %(token)s, attempts = o.attempts + 1,
           available_at = CASE WHEN o.claimed_at IS NULL THEN o.available_at ELSE statement_timestamp() END
     WHERE o.id = ANY (ARRAY(SELECT h.id FROM head h WHERE h.again UNION ALL SELECT b.id FROM batch b))
    RETURNING o.id, o.kind, o.payload::text, o.attempts, o.available_at, o.created_at
)
SELECT (SELECT h.again FROM head h), t.* FROM taken t ORDER BY t.available_at, t.id;


-- name: ack
-- A row that failed is not completed as well, and the other way round: open rows only.
UPDATE {schema}.outbox SET completed_at = clock_timestamp()
 WHERE id = ANY (%(ids)s::uuid[]) AND claimed_by = %(token)s AND completed_at IS NULL AND failed_at IS NULL
RETURNING id, false;


-- name: fail
-- Terminal, as mnemora has it, unless a delay is given: then the row is open and due again after it.
UPDATE {schema}.outbox o
   SET failed_at = CASE WHEN f.after IS NULL THEN clock_timestamp() END,
       available_at = CASE WHEN f.after IS NULL THEN o.available_at
                           ELSE clock_timestamp() + make_interval(secs => f.after) END,
       claimed_at = CASE WHEN f.after IS NULL THEN o.claimed_at END,
       claimed_by = CASE WHEN f.after IS NULL THEN o.claimed_by END,
       last_error = f.error
  FROM unnest(%(ids)s::uuid[], %(errors)s::text[], %(afters)s::float8[]) AS f (id, error, after)
 WHERE o.id = f.id AND o.claimed_by = %(token)s AND o.completed_at IS NULL AND o.failed_at IS NULL
RETURNING o.id, f.after IS NULL;


-- name: snooze
-- For a second at least, as in our own outbox.
UPDATE {schema}.outbox o
   SET available_at = greatest(s.until, clock_timestamp() + interval '1 second'), claimed_at = NULL, claimed_by = NULL
  FROM unnest(%(ids)s::uuid[], %(untils)s::timestamptz[]) AS s (id, until)
 WHERE o.id = s.id AND o.claimed_by = %(token)s AND o.completed_at IS NULL AND o.failed_at IS NULL
RETURNING o.id, false;


-- name: release
UPDATE {schema}.outbox SET claimed_at = NULL, claimed_by = NULL
 WHERE id = ANY (%(ids)s::uuid[]) AND claimed_by = %(token)s AND completed_at IS NULL AND failed_at IS NULL
RETURNING id, false;


-- name: renew
UPDATE {schema}.outbox SET claimed_at = clock_timestamp()
 WHERE id = ANY (%(ids)s::uuid[]) AND claimed_by = %(token)s AND completed_at IS NULL AND failed_at IS NULL
RETURNING id, false;


-- name: kinds
-- Reads the tenant's open rows: there is no index that leads with the kind and holds the claimed ones too.
SELECT DISTINCT o.kind FROM {schema}.outbox o
 WHERE o.tenant_id = %(tenant_id)s AND o.completed_at IS NULL AND o.failed_at IS NULL
 ORDER BY o.kind;


-- name: oldest
-- Index: idx_outbox_claimable.
SELECT extract(epoch FROM clock_timestamp() - min(r.available_at))::float8, count(*)
  FROM (SELECT o.available_at FROM {schema}.outbox o
         WHERE o.tenant_id = %(tenant_id)s AND o.completed_at IS NULL AND o.failed_at IS NULL
           AND o.available_at <= statement_timestamp()
           AND (o.claimed_at IS NULL OR o.claimed_at <= statement_timestamp() - make_interval(secs => %(lease)s))
         ORDER BY o.available_at
         LIMIT %(bound)s) r;
