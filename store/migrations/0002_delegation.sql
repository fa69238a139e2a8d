-- The operations that name another one as their parent: found from the parent.
BEGIN IMMEDIATE;

CREATE INDEX operations_of_parent ON operations (parent_operation_id, run) WHERE parent_operation_id IS NOT NULL;

PRAGMA user_version = 2;

COMMIT;
