-- Writes what the holder of the lock has worked out. Where a newer holder has written the row, no row is changed; then
-- \gset has nothing to take, and psql ends with an error.
\set ON_ERROR_STOP on
UPDATE stock SET pieces = :pieces, fence = :fence
    WHERE item = 'lamp' AND fence <= :fence
    RETURNING pieces AS written \gset
\echo :written are left
