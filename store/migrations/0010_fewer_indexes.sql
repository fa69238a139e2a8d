-- Each call writes fewer pages: one index says which writes are alike, and which of them guard; and what is open of a
-- run is looked for among all that is open, which is little.
BEGIN IMMEDIATE;

DROP INDEX operations_guarding;

DROP INDEX operations_alike;

CREATE INDEX operations_alike ON operations (run, args_digest, guards) WHERE write = 1;

DROP INDEX commands_open_of_run;

PRAGMA user_version = 10;
COMMIT;
