-- The row keeps the highest fencing token that has written it.
CREATE TABLE stock (
    item  text   PRIMARY KEY,
    pieces integer NOT NULL,
    fence bigint NOT NULL DEFAULT 0
);
INSERT INTO stock (item, pieces) VALUES ('lamp', 100);
