-- A producer in plain SQL, from any language and driver: one function call within the transaction of what it tells about.
-- The row is there if, and only if, that transaction commits. The role needs USAGE on the schema and EXECUTE on the function.
BEGIN;

CREATE TEMP TABLE users (id bigint, email text); -- your own table
INSERT INTO users VALUES (42, 'a@example.org');

-- tenant, kind and payload; all else by name, as far as it is wanted
SELECT id, outcome FROM tickkeeper.enqueue('acme', 'mail.welcome', '{"user": 42}');

-- at most one row of a tenant waits under a dedup_key: keep it (the default), replace its content, or raise 23505
SELECT id, outcome FROM tickkeeper.enqueue('acme', 'search.index', '{"user": 42, "version": 1}',
                                           dedup_key => 'user-42', on_duplicate => 'replace');
SELECT id, outcome FROM tickkeeper.enqueue('acme', 'search.index', '{"user": 42, "version": 2}',
                                           dedup_key => 'user-42', on_duplicate => 'replace');

-- rows of one ordering_key are delivered one after another, in the order of their commits
SELECT id, outcome FROM tickkeeper.enqueue('acme', 'ledger.booked', '{"amount": "9.90"}', ordering_key => 'account-7');

-- later, with headers, and given up after five attempts
SELECT id, outcome FROM tickkeeper.enqueue('acme', 'mail.reminder', '{"user": 42}',
                                           headers => '{"trace": "4bf92f35"}', max_attempts => 5,
                                           available_at => now() + interval '3 days');

COMMIT;
