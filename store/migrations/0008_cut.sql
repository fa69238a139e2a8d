-- What stood in one row since before there were pieces stands in pieces now: `store.cutting` has seen to it.
BEGIN IMMEDIATE;
PRAGMA user_version = 8;
COMMIT;
