-- @serves 1
-- Two functions of the migration before, so that a replayed row never comes between the rows of a run that a worker has: the
-- key would be with two workers. No table is changed, nobody waits.
--
-- A row that was replayed and not tried since is known by having an error and no attempt. It can lie within a run whose
-- first row had been replayed before it.


-- The first row of a key is gone: the next becomes the first. Waits for nobody: what cannot be done now is noted.
--
-- The next: the rest of the run that the deleted row belonged to, else the row behind it, else (a replayed row can have
-- a smaller id) the smallest. A row that was replayed lately can lie within the run: it waits for the run's end.
-- No row to be seen does not mean that there is none: a producer may have put one behind the deleted row and not committed
-- yet. Producers hold the key's row; only where that is free is the key idle.
CREATE OR REPLACE FUNCTION {schema}.outbox_next() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, {schema}, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $function$
DECLARE
    next_id    bigint;
    next_lease uuid;
    replayed   boolean;
    rest_id    bigint;
    rest_lease uuid;
BEGIN
    IF EXISTS (SELECT FROM outbox_block b WHERE b.tenant_id = OLD.tenant_id AND b.ordering_key = OLD.ordering_key) THEN
        RETURN NULL;
    END IF;
    SELECT o.id, o.lease_id, o.lease_id IS NULL AND o.attempts = 0 AND o.last_error IS NOT NULL
      INTO next_id, next_lease, replayed FROM outbox o
     WHERE o.tenant_id = OLD.tenant_id AND o.ordering_key = OLD.ordering_key AND o.id > OLD.id
     ORDER BY o.id LIMIT 1;
    IF replayed AND OLD.lease_id IS NOT NULL THEN
        -- Behind those that were replayed and not tried since: is it the run's own?
        SELECT o.id, o.lease_id INTO rest_id, rest_lease FROM outbox o
         WHERE o.tenant_id = OLD.tenant_id AND o.ordering_key = OLD.ordering_key AND o.id > next_id
           AND (o.lease_id IS NOT NULL OR o.attempts > 0 OR o.last_error IS NULL)
         ORDER BY o.id LIMIT 1;
        IF rest_lease = OLD.lease_id THEN
            next_id := rest_id;
            next_lease := rest_lease;
            INSERT INTO outbox_key_check (tenant_id, ordering_key)
            SELECT OLD.tenant_id, OLD.ordering_key WHERE NOT EXISTS (
                SELECT FROM outbox_key_check c WHERE c.tenant_id = OLD.tenant_id AND c.ordering_key = OLD.ordering_key);
        END IF;
    END IF;
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


-- Give a key its first row again, where it has rows and none of them is the first. True: nothing is left to be done;
-- false: somebody's transaction stands in the way, ask again. Waits a moment at most. Run under the lock of its entry in
-- outbox_key_check, one key at a time.
CREATE OR REPLACE FUNCTION {schema}.outbox_mend(tenant text, key text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, {schema}, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET lock_timeout = '100ms'
AS $function$
DECLARE
    first_id bigint;
    least_id bigint;
    rest_id  bigint;
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
        -- Unless it is about to leave: whoever takes it out may have looked for the next before what was noted was there.
        PERFORM FROM outbox o WHERE o.id = first_id FOR KEY SHARE SKIP LOCKED;
        RETURN FOUND;
    END IF;
    IF first_id IS NULL THEN
        -- The first rows of a run have left all at once and it goes on: a replayed row before its rest waits for its end.
        SELECT CASE WHEN r.lease_until > clock_timestamp() THEN r.id END INTO rest_id
          FROM (SELECT o.id, o.lease_until FROM outbox o
                 WHERE o.tenant_id = tenant AND o.ordering_key = key
                   AND (o.lease_id IS NOT NULL OR o.attempts > 0 OR o.last_error IS NULL)
                 ORDER BY o.id LIMIT 1) r;
        IF rest_id <> least_id THEN
            UPDATE outbox o SET available_at = o.due_at, due_at = NULL
             WHERE o.id = (SELECT r.id FROM outbox r WHERE r.id = rest_id AND r.due_at IS NOT NULL
                              FOR UPDATE SKIP LOCKED);
            RETURN false;
        END IF;
    ELSE
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
