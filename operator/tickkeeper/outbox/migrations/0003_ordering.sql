-- @serves 1
-- Strict order per key, and pauses. Each lock that this takes on a table in use is held for milliseconds only.
--
-- Order. Of the rows with one ordering_key (of a tenant) the first has a finite available_at, as any other row: so claims
-- find it by its due time among the others, and its lease is the lease of its key. The rows behind it have available_at
-- 'infinity' and their own due time in due_at, so no claim finds them; whoever has leased the first takes them along.
-- Whatever deletes the first row (an ack, a burial, a cancellation, somebody's own statement) makes the next one the
-- first, by the trigger below, in the same transaction.
--
-- Roles. Whoever has grants on the table outbox is given them on the new tables too, here. A producer still needs USAGE
-- on the schema and EXECUTE on enqueue only. A worker that is made from now on:
--
--     GRANT USAGE ON SCHEMA tickkeeper TO my_worker;
--     GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA tickkeeper TO my_worker;
--     GRANT EXECUTE ON FUNCTION tickkeeper.outbox_mend TO my_worker;

ALTER TABLE {schema}.outbox ADD COLUMN due_at timestamptz;

-- The lock of a key's producers: a row for each key that has rows, or is about to have.
CREATE TABLE {schema}.outbox_key (
    tenant_id    text NOT NULL,
    ordering_key text NOT NULL,
    PRIMARY KEY (tenant_id, ordering_key)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.01);

-- Keys to look after once the transactions that stood in the way have ended, see outbox_mend.
CREATE TABLE {schema}.outbox_key_check (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id    text NOT NULL,
    ordering_key text NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.01);

-- Serves: checks (and in outbox_next: whether a key is to be looked after).
CREATE INDEX outbox_key_check_key ON {schema}.outbox_key_check (tenant_id, ordering_key);

-- Dead rows that block the rows behind them, by the dead row's id.
CREATE TABLE {schema}.outbox_block (
    id           bigint PRIMARY KEY,
    tenant_id    text NOT NULL,
    ordering_key text NOT NULL
);

-- Serves: checks (in outbox_mend, outbox_next and enqueue: whether a key is blocked).
CREATE INDEX outbox_block_key ON {schema}.outbox_block (tenant_id, ordering_key);

-- What is not claimed. '' is every tenant, or every kind.
CREATE TABLE {schema}.outbox_pause (
    tenant_id text        NOT NULL,
    kind      text        NOT NULL,
    since     timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, kind)
);


-- The first row of a key is gone: the next becomes the first. Waits for nobody: what cannot be done now is noted.
--
-- The next: the rest of the run that the deleted row belonged to, else the row behind it, else (a replayed row can have
-- a smaller id) the smallest. No row to be seen does not mean that there is none: a producer may have put one behind
-- the deleted row and not committed yet. Producers hold the key's row; only where that is free is the key idle.
CREATE FUNCTION {schema}.outbox_next() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, {schema}, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $function$
DECLARE
    next_id    bigint;
    next_lease uuid;
BEGIN
    IF EXISTS (SELECT FROM outbox_block b WHERE b.tenant_id = OLD.tenant_id AND b.ordering_key = OLD.ordering_key) THEN
        RETURN NULL;
    END IF;
    SELECT o.id, o.lease_id INTO next_id, next_lease FROM outbox o
     WHERE o.tenant_id = OLD.tenant_id AND o.ordering_key = OLD.ordering_key AND o.id > OLD.id
     ORDER BY o.id LIMIT 1;
    IF next_id IS NULL OR (next_lease IS NULL OR next_lease IS DISTINCT FROM OLD.lease_id) AND EXISTS (
        SELECT FROM outbox_key_check c WHERE c.tenant_id = OLD.tenant_id AND c.ordering_key = OLD.ordering_key
    ) THEN
        SELECT o.id INTO next_id FROM outbox o
         WHERE o.tenant_id = OLD.tenant_id AND o.ordering_key = OLD.ordering_key
         ORDER BY o.id LIMIT 1;
    END IF;
    IF next_id IS NULL THEN
        PERFORM FROM outbox_key k WHERE k.tenant_id = OLD.tenant_id AND k.ordering_key = OLD.ordering_key
            FOR UPDATE SKIP LOCKED;
        IF FOUND THEN
            -- Looked at again: what was committed between our first look and the lock.
            SELECT o.id INTO next_id FROM outbox o
             WHERE o.tenant_id = OLD.tenant_id AND o.ordering_key = OLD.ordering_key
             ORDER BY o.id LIMIT 1;
            IF next_id IS NULL THEN
                DELETE FROM outbox_key k WHERE k.tenant_id = OLD.tenant_id AND k.ordering_key = OLD.ordering_key;
                RETURN NULL;
            END IF;
        END IF;
    END IF;
    IF next_id IS NOT NULL THEN
        -- A producer that keeps or replaces it by its dedup_key may hold it.
        PERFORM FROM outbox o WHERE o.id = next_id FOR UPDATE SKIP LOCKED;
        IF FOUND THEN
            UPDATE outbox o SET available_at = o.due_at, due_at = NULL WHERE o.id = next_id AND o.due_at IS NOT NULL;
            RETURN NULL;
        END IF;
    END IF;
    INSERT INTO outbox_key_check (tenant_id, ordering_key) VALUES (OLD.tenant_id, OLD.ordering_key);
    RETURN NULL;
END
$function$;

REVOKE ALL ON FUNCTION {schema}.outbox_next() FROM PUBLIC;

CREATE TRIGGER outbox_next AFTER DELETE ON {schema}.outbox FOR EACH ROW
    WHEN (OLD.ordering_key IS NOT NULL AND OLD.due_at IS NULL)
    EXECUTE FUNCTION {schema}.outbox_next();


-- A dead row is gone, replayed or purged: what it blocked may go on.
CREATE FUNCTION {schema}.outbox_dead_gone() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, {schema}, pg_temp
AS $function$
BEGIN
    DELETE FROM outbox_block b WHERE b.id = OLD.id;
    IF FOUND OR EXISTS (SELECT FROM outbox o WHERE o.id = OLD.id) THEN
        INSERT INTO outbox_key_check (tenant_id, ordering_key) VALUES (OLD.tenant_id, OLD.ordering_key);
    END IF;
    RETURN NULL;
END
$function$;

REVOKE ALL ON FUNCTION {schema}.outbox_dead_gone() FROM PUBLIC;

CREATE TRIGGER outbox_dead_gone AFTER DELETE ON {schema}.outbox_dead FOR EACH ROW
    WHEN (OLD.ordering_key IS NOT NULL)
    EXECUTE FUNCTION {schema}.outbox_dead_gone();


-- Give a key its first row again, where it has rows and none of them is the first. True: nothing is left to be done;
-- false: somebody's transaction stands in the way, ask again. Waits a moment at most. Run under the lock of its entry in
-- outbox_key_check, one key at a time.
CREATE FUNCTION {schema}.outbox_mend(tenant text, key text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, {schema}, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET lock_timeout = '100ms'
AS $function$
DECLARE
    first_id bigint;
    least_id bigint;
BEGIN
    IF EXISTS (SELECT FROM outbox_block b WHERE b.tenant_id = tenant AND b.ordering_key = key) THEN
        RETURN true; -- whoever takes the block away notes the key again
    END IF;
    SELECT o.id INTO first_id FROM outbox o
     WHERE o.tenant_id = tenant AND o.ordering_key = key AND o.available_at < 'infinity';
    SELECT o.id INTO least_id FROM outbox o
     WHERE o.tenant_id = tenant AND o.ordering_key = key
     ORDER BY o.id LIMIT 1;
    IF least_id IS NULL THEN
        PERFORM FROM outbox_key k WHERE k.tenant_id = tenant AND k.ordering_key = key FOR UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            RETURN NOT EXISTS (SELECT FROM outbox_key k WHERE k.tenant_id = tenant AND k.ordering_key = key);
        END IF;
        SELECT o.id INTO least_id FROM outbox o
         WHERE o.tenant_id = tenant AND o.ordering_key = key
         ORDER BY o.id LIMIT 1;
        IF least_id IS NULL THEN
            DELETE FROM outbox_key k WHERE k.tenant_id = tenant AND k.ordering_key = key;
            RETURN true;
        END IF;
        RETURN false; -- looked at afresh next time
    END IF;
    IF first_id = least_id THEN
        RETURN true;
    END IF;
    IF first_id IS NOT NULL THEN
        -- A replayed row has a smaller id: it goes before the first, unless that is with a worker.
        PERFORM FROM outbox o WHERE o.id = first_id AND o.lease_id IS NULL FOR UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            RETURN false;
        END IF;
    END IF;
    PERFORM FROM outbox o WHERE o.id = least_id AND o.due_at IS NOT NULL FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE outbox o SET due_at = o.available_at, available_at = 'infinity' WHERE o.id = first_id;
    UPDATE outbox o SET available_at = o.due_at, due_at = NULL WHERE o.id = least_id;
    RETURN true;
EXCEPTION WHEN unique_violation OR lock_not_available THEN
    RETURN false; -- a producer found the key empty and is about to commit its first row
END
$function$;

REVOKE ALL ON FUNCTION {schema}.outbox_mend(text, text) FROM PUBLIC;


-- Put one row into the outbox, within the caller's own transaction: it is there if, and only if, that commits.
--
-- on_duplicate says what happens when an open row of the tenant holds the same dedup_key (open: not yet claimed):
--   keep     leave it, and hold it until the caller commits, so that its handler sees the caller's changes;
--   replace  give it the new content and keep its id and its place in the queue (its ordering_key must be the same);
--   error    raise unique_violation (23505).
-- outcome is 'inserted', 'kept' or 'replaced', and id is the row's.
--
-- Rows of one ordering_key are delivered one after another, in the order of their commits. To that end each of them waits
-- here for other transactions that have enqueued to the key: enqueue late in a transaction, and where it takes several
-- keys, in one order everywhere.
--
-- A bad argument raises invalid_parameter_value (22023) with the field, the value and the rule. No NOTIFY is sent: at a
-- thousand commits a second its lock is felt.
CREATE OR REPLACE FUNCTION {schema}.enqueue(
    tenant_id    text,
    kind         text,
    payload      jsonb,
    headers      jsonb       DEFAULT NULL,
    dedup_key    text        DEFAULT NULL,
    on_duplicate text        DEFAULT 'keep',
    available_at timestamptz DEFAULT NULL,
    max_attempts integer     DEFAULT 20,
    ordering_key text        DEFAULT NULL
) RETURNS TABLE (id bigint, outcome text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, {schema}, pg_temp
-- Its plans are kept for a session, and may have been made while the table was empty.
SET enable_seqscan = off
AS $function$
#variable_conflict use_column
DECLARE
    size  integer;
    given jsonb := coalesce(enqueue.headers, jsonb_build_object());
    field text;
    value text;
    behind boolean := false;
    held   text;
BEGIN
    FOR field, value IN
        VALUES ('tenant_id', enqueue.tenant_id), ('kind', enqueue.kind)
    LOOP
        IF value IS NULL OR value = '' THEN
            RAISE EXCEPTION '% is %: must be 1 to 128 characters', field, CASE WHEN value IS NULL THEN 'null' ELSE 'empty' END
                USING ERRCODE = 'invalid_parameter_value';
        END IF;
        IF length(value) > 128 THEN
            RAISE EXCEPTION '% is % characters long: must be 1 to 128 characters', field, length(value)
                USING ERRCODE = 'invalid_parameter_value';
        END IF;
        IF value ~ '[\x01-\x1f\x7f]' THEN
            RAISE EXCEPTION '% is %: must hold no control character', field, to_json(value)
                USING ERRCODE = 'invalid_parameter_value';
        END IF;
    END LOOP;

    IF enqueue.payload IS NULL THEN
        RAISE EXCEPTION 'payload is null: must be a JSON value (JSON''s own null is ''null''::jsonb)'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    size := octet_length(enqueue.payload::text);
    IF size > 16777216 THEN
        RAISE EXCEPTION 'payload is % bytes long as text: must be at most 16777216 (16 MiB)', size
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'Put large content elsewhere and enqueue a reference to it.';
    END IF;

    IF jsonb_typeof(given) <> 'object' THEN
        RAISE EXCEPTION 'headers is a JSON %: must be an object of strings', jsonb_typeof(given)
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF octet_length(given::text) > 65536 THEN
        RAISE EXCEPTION 'headers is % bytes long as text: must be at most 65536 (64 KiB)', octet_length(given::text)
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT h.key, jsonb_typeof(h.value) INTO field, value
      FROM jsonb_each(given) h WHERE jsonb_typeof(h.value) <> 'string' LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'headers[%] is a JSON %: must be a string', to_json(field), value
            USING ERRCODE = 'invalid_parameter_value';
    END IF;

    IF enqueue.dedup_key = '' OR length(enqueue.dedup_key) > 512 THEN
        RAISE EXCEPTION 'dedup_key is % characters long: must be 1 to 512 characters, or null', length(enqueue.dedup_key)
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF enqueue.on_duplicate IS NULL OR enqueue.on_duplicate NOT IN ('keep', 'replace', 'error') THEN
        RAISE EXCEPTION 'on_duplicate is %: must be keep, replace or error', coalesce(to_json(enqueue.on_duplicate)::text, 'null')
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- Infinity and years that most languages cannot read would strand the batch that meets them.
    IF enqueue.available_at NOT BETWEEN '0001-01-02Z' AND '9999-12-30Z' THEN
        RAISE EXCEPTION 'available_at is %: must lie in the years 1 to 9999', enqueue.available_at
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF enqueue.max_attempts IS NULL OR enqueue.max_attempts NOT BETWEEN 1 AND 1000 THEN
        RAISE EXCEPTION 'max_attempts is %: must be 1 to 1000', coalesce(enqueue.max_attempts::text, 'null')
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF enqueue.ordering_key = '' OR length(enqueue.ordering_key) > 512 THEN
        RAISE EXCEPTION 'ordering_key is % characters long: must be 1 to 512 characters, or null',
            length(enqueue.ordering_key)
            USING ERRCODE = 'invalid_parameter_value';
    END IF;

    IF enqueue.ordering_key IS NOT NULL THEN
        -- The key's row is locked until the caller commits, and only then is an id drawn: within a key the order of
        -- ids is the order of commits. Locked and not updated: a transaction of many rows would leave as many versions.
        LOOP
            PERFORM FROM outbox_key k
              WHERE k.tenant_id = enqueue.tenant_id AND k.ordering_key = enqueue.ordering_key
                FOR UPDATE;
            EXIT WHEN FOUND;
            INSERT INTO outbox_key (tenant_id, ordering_key) VALUES (enqueue.tenant_id, enqueue.ordering_key)
            ON CONFLICT DO NOTHING;
            EXIT WHEN FOUND;
        END LOOP;
        -- At a stricter isolation our view of the key is older than its lock: then somebody else looks, afterwards.
        -- The newest row first, and not in an EXISTS, which drops the order: under an old snapshot the oldest are all dead.
        behind := current_setting('transaction_isolation') <> 'read committed'
               OR (SELECT o.id FROM outbox o
                    WHERE o.tenant_id = enqueue.tenant_id AND o.ordering_key = enqueue.ordering_key
                    ORDER BY o.id DESC LIMIT 1) IS NOT NULL
               OR EXISTS (SELECT FROM outbox_block b
                           WHERE b.tenant_id = enqueue.tenant_id AND b.ordering_key = enqueue.ordering_key);
    END IF;

    -- A few turns at most: the row that holds the key can be claimed between our look and our lock.
    FOR turn IN 1 .. 100 LOOP
        INSERT INTO outbox AS o (tenant_id, kind, payload, payload_bytes, headers, dedup_key, ordering_key,
                                 max_attempts, available_at, due_at, created_at)
        VALUES (enqueue.tenant_id, enqueue.kind, enqueue.payload, size, given, enqueue.dedup_key, enqueue.ordering_key,
                enqueue.max_attempts,
                CASE WHEN behind THEN 'infinity' ELSE coalesce(enqueue.available_at, clock_timestamp()) END,
                CASE WHEN behind THEN coalesce(enqueue.available_at, clock_timestamp()) END, clock_timestamp())
        ON CONFLICT (tenant_id, dedup_key, dedup_freed) WHERE dedup_key IS NOT NULL DO NOTHING
        RETURNING o.id INTO enqueue.id;
        IF FOUND THEN
            IF behind AND current_setting('transaction_isolation') <> 'read committed' THEN
                INSERT INTO outbox_key_check (tenant_id, ordering_key)
                VALUES (enqueue.tenant_id, enqueue.ordering_key);
            END IF;
            enqueue.outcome := 'inserted';
            RETURN NEXT;
            RETURN;
        END IF;

        IF enqueue.on_duplicate = 'error' THEN
            RAISE EXCEPTION 'dedup_key is %: must be unique among the rows of tenant % that wait',
                to_json(enqueue.dedup_key), to_json(enqueue.tenant_id)
                USING ERRCODE = 'unique_violation';
        ELSIF enqueue.on_duplicate = 'keep' THEN
            -- Locked until the caller commits: a claim passes over it, so its handler cannot run on the state before.
            SELECT o.id, o.ordering_key INTO enqueue.id, held FROM outbox o
             WHERE o.tenant_id = enqueue.tenant_id AND o.dedup_key = enqueue.dedup_key AND o.dedup_freed = 0
               FOR SHARE;
            enqueue.outcome := 'kept';
        ELSE
            -- Without a due time of its own the newer row is due at once, or when the older was, whichever is earlier:
            -- content that is replaced again and again must not lose its place for ever.
            -- A row behind another of its ordering_key keeps its own due time apart.
            UPDATE outbox o
               SET kind = enqueue.kind, payload = enqueue.payload, payload_bytes = size, headers = given,
                   max_attempts = enqueue.max_attempts,
                   available_at = CASE WHEN o.due_at IS NOT NULL THEN o.available_at
                       ELSE coalesce(enqueue.available_at, least(o.available_at, clock_timestamp())) END,
                   due_at = CASE WHEN o.due_at IS NOT NULL
                       THEN coalesce(enqueue.available_at, least(o.due_at, clock_timestamp())) END
             WHERE o.tenant_id = enqueue.tenant_id AND o.dedup_key = enqueue.dedup_key AND o.dedup_freed = 0
            RETURNING o.id, o.ordering_key INTO enqueue.id, held;
            enqueue.outcome := 'replaced';
        END IF;
        IF FOUND THEN
            IF held IS DISTINCT FROM enqueue.ordering_key THEN
                IF enqueue.on_duplicate = 'replace' THEN
                    RAISE EXCEPTION 'ordering_key is %: must be that of the row to replace, %',
                        coalesce(to_json(enqueue.ordering_key)::text, 'null'), coalesce(to_json(held)::text, 'null')
                        USING ERRCODE = 'unique_violation';
                END IF;
                -- Our key's row was made for nothing, perhaps.
                INSERT INTO outbox_key_check (tenant_id, ordering_key)
                SELECT enqueue.tenant_id, enqueue.ordering_key WHERE enqueue.ordering_key IS NOT NULL;
            END IF;
            RETURN NEXT;
            RETURN;
        END IF;
    END LOOP;
    RAISE EXCEPTION 'dedup_key is %: its row was claimed and enqueued anew 100 times while we tried', to_json(enqueue.dedup_key)
        USING ERRCODE = 'serialization_failure';
END
$function$;


-- Whoever may work on the table outbox may do the same to the tables around it, and run what a worker runs.
DO $grants$
DECLARE
    given record;
BEGIN
    FOR given IN
        SELECT a.grantee, a.privilege_type
          FROM pg_catalog.pg_class c CROSS JOIN LATERAL pg_catalog.aclexplode(c.relacl) a
         WHERE c.oid = '{schema}.outbox'::regclass AND a.grantee NOT IN (0, c.relowner)
           AND a.privilege_type IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE')
    LOOP
        EXECUTE format('GRANT %s ON %s, %s, %s, %s TO %s', given.privilege_type,
            '{schema}.outbox_key'::regclass, '{schema}.outbox_key_check'::regclass, '{schema}.outbox_block'::regclass, '{schema}.outbox_pause'::regclass, given.grantee::regrole);
        IF given.privilege_type = 'UPDATE' THEN
            EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s', '{schema}.outbox_mend(text, text)'::regprocedure, given.grantee::regrole);
        END IF;
    END LOOP;
END
$grants$;
