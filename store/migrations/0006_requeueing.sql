-- A dead letter that was requeued has a copy further on in the stream: what reads an operation's events must know which.
BEGIN IMMEDIATE;

CREATE UNIQUE INDEX dead_letters_requeued ON dead_letters (requeued_as) WHERE requeued_as IS NOT NULL;

CREATE INDEX dead_letters_parked ON dead_letters (seq) WHERE requeued_as IS NULL;

PRAGMA user_version = 6;
COMMIT;
