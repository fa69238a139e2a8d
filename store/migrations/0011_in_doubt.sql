-- Which writes of a run guard although they are over: hardly any write ever comes into these.
BEGIN IMMEDIATE;

CREATE INDEX operations_in_doubt ON operations (run) WHERE guards = 1 AND ended_at IS NOT NULL;

CREATE INDEX tombstones_in_doubt ON tombstones (run)
WHERE write = 1 AND state IN ('failed', 'unknown') AND (effect_by = 'supervisor' OR (effect_by = 'operator' AND effect = 'unknown'));

PRAGMA user_version = 11;
COMMIT;
