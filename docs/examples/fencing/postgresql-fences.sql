-- Where a holder writes several tables, or inserts rows: one row for each lock.
CREATE TABLE fences (
    lock  text   PRIMARY KEY,
    fence bigint NOT NULL
);
CREATE TABLE sales (
    item  text   NOT NULL,
    fence bigint NOT NULL
);
