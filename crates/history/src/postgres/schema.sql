CREATE TABLE version (number integer NOT NULL);
INSERT INTO version VALUES (1);
CREATE SEQUENCE run_id;
CREATE TABLE runs (
    id bigint NOT NULL,
    started_at timestamptz NOT NULL,
    schema text NOT NULL,
    path text NOT NULL,
    workload text NOT NULL,
    detail text NOT NULL,
    series text COLLATE "C" NOT NULL,
    answer text NOT NULL,
    cause text,
    labels jsonb NOT NULL,
    document jsonb NOT NULL,
    PRIMARY KEY (id, started_at)
) PARTITION BY RANGE (started_at);
CREATE INDEX ON runs (started_at, id);
CREATE INDEX ON runs (series, started_at, id);
CREATE INDEX ON runs (path, started_at, id);
CREATE INDEX ON runs USING gin (labels jsonb_path_ops);
CREATE TABLE figures (
    run bigint NOT NULL,
    started_at timestamptz NOT NULL,
    place integer NOT NULL,
    metric text COLLATE "C" NOT NULL,
    value double precision NOT NULL,
    PRIMARY KEY (run, metric, started_at)
) PARTITION BY RANGE (started_at);
CREATE TABLE pairs (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    test text NOT NULL,
    from_site text NOT NULL,
    to_site text NOT NULL,
    UNIQUE (test, from_site, to_site)
);
CREATE TABLE results (
    run bigint NOT NULL,
    started_at timestamptz NOT NULL,
    pair integer NOT NULL REFERENCES pairs,
    throughput_bps double precision,
    loss_percent double precision,
    rtt_us double precision,
    cause text,
    confidence double precision,
    PRIMARY KEY (run, pair, started_at)
) PARTITION BY RANGE (started_at);
CREATE INDEX ON results (pair, started_at, run);
CREATE TABLE rollups (
    series text COLLATE "C" NOT NULL,
    metric text COLLATE "C" NOT NULL,
    place integer NOT NULL,
    period text NOT NULL,
    begins timestamptz NOT NULL,
    runs bigint NOT NULL,
    low double precision NOT NULL,
    median double precision NOT NULL,
    high double precision NOT NULL,
    PRIMARY KEY (series, period, metric, begins)
);
CREATE TABLE alarms (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    series text NOT NULL,
    run bigint NOT NULL,
    change text NOT NULL,
    told boolean NOT NULL DEFAULT false,
    UNIQUE (series, run)
);
