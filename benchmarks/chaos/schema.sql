-- What was enqueued, written in the transaction that enqueued it, and what the handlers have done.
CREATE TABLE enqueued (
    row_id    bigint PRIMARY KEY,
    tenant_id text   NOT NULL,
    kind      text   NOT NULL,
    key       text,
    -- whether its payload asks for it to be given up
    dies      boolean NOT NULL
);
CREATE TABLE effects (
    place  bigint GENERATED ALWAYS AS IDENTITY,
    row_id bigint NOT NULL
);
