-- The first statement of the transaction: it lets nobody through behind a newer holder, and keeps the row until COMMIT, so
-- that a newer holder waits for what an older one has begun.
\set ON_ERROR_STOP on
BEGIN;
INSERT INTO fences VALUES ('lock:stock:lamp', :fence)
    ON CONFLICT (lock) DO UPDATE SET fence = EXCLUDED.fence WHERE fences.fence <= EXCLUDED.fence
    RETURNING fence AS accepted \gset
INSERT INTO sales (item, fence) VALUES ('lamp', :accepted);
UPDATE stock SET pieces = pieces - 1 WHERE item = 'lamp';
COMMIT;
