-- The records as the hub kept them before their layout had numbers: made by that hub, written by `sqlite3 .dump`.
BEGIN TRANSACTION;
CREATE TABLE counter (
	schema_version INTEGER NOT NULL, 
	sequence BIGINT NOT NULL
);
INSERT INTO "counter" VALUES(1,6);
CREATE TABLE record (
	kind TEXT NOT NULL, 
	id TEXT NOT NULL, 
	sequence BIGINT NOT NULL, 
	version BIGINT NOT NULL, 
	at TEXT NOT NULL, 
	subject TEXT NOT NULL, 
	parent TEXT, 
	state TEXT, 
	body TEXT NOT NULL, 
	due_at TEXT, 
	owner TEXT, 
	lease_until TEXT, 
	PRIMARY KEY (kind, id), 
	UNIQUE (sequence)
);
INSERT INTO "record" VALUES('event','an event',1,1,'2026-01-31T12:00:00.000000Z','c/n1/gpu/GPU-1',NULL,NULL,'{"xid": 79, "text": "it''s \u00fc"}',NULL,NULL,NULL);
INSERT INTO "record" VALUES('incident','an incident',5,2,'2026-01-31T12:00:00.000000Z','c/n1/gpu/GPU-1',NULL,'resolved','{"state": "resolved", "resolved_at": "2026-01-31T12:00:00.000000Z"}',NULL,NULL,NULL);
INSERT INTO "record" VALUES('transition','an incident:1',3,1,'2026-01-31T12:00:00.000000Z','c/n1/gpu/GPU-1','an incident',NULL,'{}','2026-01-31T12:00:00.000000Z','alerts-1','2026-01-31T12:01:00.000000Z');
INSERT INTO "record" VALUES('transition','an incident:2',4,1,'2026-01-31T12:00:00.000000Z','c/n1/gpu/GPU-1','an incident',NULL,'{}','2026-01-31T12:00:00.000000Z',NULL,NULL);
INSERT INTO "record" VALUES('allocation','held',6,1,'2026-01-31T12:00:00.000000Z','c/n1/gpu/GPU-1',NULL,'held','{"ended_at": null}',NULL,NULL,NULL);
CREATE INDEX record_by_state ON record (kind, state, sequence);
CREATE INDEX record_due ON record (kind, due_at);
CREATE INDEX record_by_kind ON record (kind, sequence);
CREATE INDEX record_by_age ON record (kind, at);
CREATE INDEX record_by_parent ON record (kind, parent);
COMMIT;
