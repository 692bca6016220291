-- The shared store of duly, version 1, for PostgreSQL 13 and later: inside a transaction, in a schema that is empty.
-- `psql -v schema=duly` reads it as it is.
--
-- One schema is one scheduler. All writes go through the functions below, one call in one message that is one
-- transaction; an advisory lock makes them one after the other, and each appends one entry to `log`. Instants are
-- microseconds since the epoch, minutes are seconds, as in the embedded store; a timestamptz is for people.
-- There is no sequence and no identity column: a backup, a replica or a logical copy of the tables is a whole store.
-- Names sort by their code points, as in Python and in the embedded store, whatever the locale of the database.

set local search_path = :"schema", pg_temp;

create table cluster (
  one boolean primary key default true check (one),
  version int not null,
  generation bigint not null,            -- the highest generation used
  edition bigint not null,               -- the one in force; 0: none yet
  edition_alone_since timestamptz,       -- since when no running host declares it
  interrupted text,                      -- that option of the set in force; null: none yet
  zone text,
  pruned bigint not null,                -- entries of the log up to this one may be gone
  history bigint not null,               -- run records kept
  traced boolean not null,               -- the log is kept as a trace, from the first entry of the oldest base on
  trace_last bigint                      -- the last entry of a trace that is over; null while one goes on
);
create index cluster_newest on cluster (pruned);

create table editions (
  edition bigint primary key,
  digest text not null,                  -- may come again: the highest counts
  since timestamptz not null
);

create table hosts (
  key int primary key,
  identifier uuid not null unique,
  label text,
  since bigint not null,
  lease interval not null check (lease between '1 s' and '1 h'),
  edition bigint not null,               -- of the set that it declares: the highest number of that set
  declaration bigint not null default 0, -- the number of the request with which it declared it
  beat bigint not null,
  renewed_at timestamptz not null,       -- for people, and for edition_alone_since
  seen bigint not null,
  max_concurrency bigint,
  threads bigint,
  fault text,                            -- what keeps it from writing, and does not pass by itself; for people
  gone "char"                            -- null, 'l'eft, 'b'uried: one way
) with (fillfactor = 50);
create index hosts_newest on hosts ((key + 0), beat);  -- an expression: no other index can take its place in host_1

-- The times in which a host could not trust its lease, and held the steps of its callbacks, in microseconds.
create table holds (
  host int not null,
  since bigint not null,
  until bigint not null,
  primary key (host, since)
);

create table tasks (
  generation bigint primary key,
  name text collate "C" not null,
  cron text not null,
  delay_ms bigint not null,
  known_since bigint not null,
  retired_at bigint,
  thread boolean not null default false  -- where its callback runs, as the last host said that declared the set in force
);
create unique index tasks_in_force on tasks (name) where retired_at is null;
create index tasks_retired on tasks (name) where retired_at is not null;

-- No index but the key: every start and every end is then a HOT update.
create table states (
  generation bigint primary key,
  served_through bigint not null,
  last_attempt_at bigint,
  last_success_at bigint,
  last_failure_at bigint,
  pending_retry_until bigint,
  failures int not null,
  interruptions int not null,
  run bigint,                            -- run / 10^12 is the host that runs it; stays set when that host is gone
  run_cause text,
  run_scheduled bigint,
  written_by int not null,               -- the host that wrote last, which may be another one
  first_started_at bigint,
  first_scheduled bigint,
  attempt int,
  changed bigint not null,               -- seq of the entry that last changed this row
  blocked_by bigint                      -- a run of an earlier declaration of the name that still goes on
) with (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.05);

-- Runs whose declaration was withdrawn, by name: the next declaration of the name waits for their end.
create table strays (
  name text collate "C" primary key,
  run bigint not null,
  host int not null,
  generation bigint not null,
  successor bigint
);

create table marks (
  name text collate "C" primary key,
  served_through bigint not null,
  retired_at bigint not null
);

create table runs (
  seq bigint primary key,
  run bigint not null,
  generation bigint not null,
  host int not null,
  cause text not null,
  scheduled bigint not null,
  started_at bigint not null,
  ended_at bigint,
  outcome text not null,
  error text,
  traceback text,
  first_started_at bigint,
  attempt int,
  called_at bigint
);
create index runs_of_generations on runs (generation, seq);

create table log (
  seq bigint primary key,
  host int not null,
  number bigint not null,                -- a number that is known: its entry is the answer; of burials and leavings -seq
  nonce uuid not null default gen_random_uuid(),
  at bigint not null,
  kind text not null,
  entry jsonb not null,
  refused bigint[],
  events int not null default 1,         -- about as many stand for it in the trace
  unique (host, number)
);

-- The trace is the log in another form. A base is what the store held before entry `first`; there are two at most, and
-- the trace begins with the older one.
create table bases (
  segment int primary key,
  first bigint not null,
  at bigint not null,
  edition bigint not null,
  interrupted text,
  generation bigint not null,            -- the highest one: higher ones stand in `tasks`, retired or not
  zone text,
  tasks bigint not null,
  events bigint not null,                -- of the log since, up to entry `counted`
  counted bigint not null
);
create table base_tasks (
  segment int not null,
  generation bigint not null,
  name text collate "C" not null,
  cron text not null,
  delay_ms bigint not null,
  thread boolean not null,
  served_through bigint not null,
  last_attempt_at bigint,
  last_success_at bigint,
  last_failure_at bigint,
  pending_retry_until bigint,
  interruptions int not null,
  run bigint,
  primary key (segment, generation)
);
create table base_hosts (
  segment int not null,
  key int not null,
  edition bigint not null,
  max_concurrency bigint,
  threads bigint,
  primary key (segment, key)
);
create table base_strays (
  segment int not null,
  name text collate "C" not null,
  run bigint not null,
  generation bigint not null,
  primary key (segment, name)
);
create table base_marks (
  segment int not null,
  name text collate "C" not null,
  served_through bigint not null,
  primary key (segment, name)
);

-- The latest run of each task that has called `guard`, by its fence; written in transactions of the application.
create table fences (
  task text collate "C" primary key,
  fence bigint not null
);

-- New declarations on their way, written before the call that puts them in force.
create table arriving (
  host uuid not null,
  at timestamptz not null,
  place int not null,
  name text collate "C" not null,
  cron text not null,
  delay_ms bigint not null,
  primary key (host, place)
);

insert into cluster values (true, 1, 0, 0, null, null, null, 0, 100000, false, null);

-- --- helpers -------------------------------------------------------------------------------------------------------

-- The one clock of all hosts, in microseconds.
create function clock_1() returns bigint language sql volatile
  as $$ select (extract(epoch from clock_timestamp()) * 1000000)::bigint $$;

create function moment_1(instant bigint) returns timestamptz language sql immutable
  as $$ select timestamptz 'epoch' + instant * interval '1 microsecond' $$;

create function digest_1(text_ text) returns text language sql immutable
  as $$ select encode(sha256(convert_to(text_, 'UTF8')), 'hex') $$;

create function is_living_1(host bigint) returns boolean language sql stable
  as $$ select exists (select from hosts h where h.key = host and h.gone is null) $$;

-- The one row of `cluster`, and that of a host. A snapshot that is open elsewhere keeps every version of them, and a key
-- finds them all, the oldest first; the last entry of an index over what grows with each version is the one that counts.
create function cluster_1() returns cluster language plpgsql stable set enable_seqscan = off as $$
declare c cluster;
begin
  select * into c from cluster order by pruned desc limit 1;
  return c;
end $$;

create function host_1(me_key int) returns hosts language plpgsql stable set enable_seqscan = off as $$
declare h hosts;
begin
  select * into h from hosts where key + 0 = me_key order by beat desc limit 1;
  return h;
end $$;

-- Take the mutex; what follows sees every entry before it. Returns the number of the entry to be written.
create function enter_1() returns bigint language plpgsql volatile as $$
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'duly needs the isolation level read committed' using errcode = 'DU005';
  end if;
  -- In the body: a SET clause would end with the function, before the commit.
  if current_setting('synchronous_commit') in ('off', 'local') then
    perform set_config('synchronous_commit', 'on', true);
  end if;
  perform pg_advisory_xact_lock('cluster'::regclass::oid::int, 0);
  -- Above every number that was ever used, although somebody may have emptied the log by hand: states bear it.
  return 1 + coalesce((select max(seq) from log),
    greatest(0, (select max(changed) from states), (select pruned from cluster)));
end $$;

-- The fence: a host without a row, or gone, changes nothing.
create function check_host_1(me_key int, me_identifier uuid) returns void language plpgsql stable as $$
declare h hosts := host_1(me_key);
begin
  if h.identifier is distinct from me_identifier then
    raise exception 'host % is not on record', me_key using errcode = 'DU001', detail = 'missing ' || me_key;
  elsif h.gone is not null then
    raise exception 'host % is gone', me_key
      using errcode = 'DU001', detail = case h.gone when 'b' then 'buried ' else 'left ' end || me_key;
  end if;
end $$;

-- A database that was set back has another entry at this position, or none.
create function check_position_1(seen_ bigint, nonce_ uuid) returns void language plpgsql stable as $$
begin
  if seen_ > (cluster_1()).pruned
     and not exists (select from log l where l.seq = seen_ and l.nonce is not distinct from nonce_) then
    raise exception 'entry % of the log is not there', seen_ using errcode = 'DU004', detail = seen_;
  end if;
end $$;

-- Begin a trace, or a part of one, with entry `first_`; `joining` is a host whose row is already there, and whose entry
-- is still to come.
create function begin_trace_1(first_ bigint, now_ bigint, joining int) returns void language plpgsql volatile as $$
declare
  segment_ int := coalesce((select max(segment) from bases), 0) + 1;
  many bigint;
begin
  insert into base_tasks
    select segment_, t.generation, t.name, t.cron, t.delay_ms, t.thread, s.served_through, s.last_attempt_at,
           s.last_success_at, s.last_failure_at, s.pending_retry_until, s.interruptions, s.run
    from tasks t join states s on s.generation = t.generation;
  get diagnostics many = row_count;
  insert into base_hosts select segment_, h.key, h.edition, h.max_concurrency, h.threads
    from hosts h where h.gone is null and h.key is distinct from joining;
  insert into base_strays select segment_, y.name, y.run, y.generation from strays y;
  insert into base_marks select segment_, m.name, m.served_through from marks m;
  insert into bases
    select segment_, first_, now_, c.edition, c.interrupted, c.generation, c.zone, many, 0, first_ - 1 from cluster c;
end $$;

create function forget_bases_1(before int) returns void language sql volatile as $$
  delete from base_tasks where segment < before;
  delete from base_hosts where segment < before;
  delete from base_strays where segment < before;
  delete from base_marks where segment < before;
  delete from bases where segment < before;
$$;

-- The trace is bounded: a part of it that has this many events, and four times as many as there are tasks, is followed
-- by the next, and the one before it is forgotten.
create function rotate_trace_1(events_min bigint) returns void language plpgsql volatile as $$
declare
  last_ bigint := (select max(seq) from log);
  b bases;
begin
  if not (select traced from cluster) then return; end if;
  update bases set counted = last_, events = events
      + coalesce((select sum(l.events) from log l where l.seq > counted and l.seq <= last_), 0)
    where segment = (select max(segment) from bases) returning * into b;
  if b.events >= events_min and b.events >= 4 * b.tasks then
    perform forget_bases_1(b.segment);
    perform begin_trace_1(last_ + 1, clock_1(), null);
  end if;
end $$;

-- Forget the oldest runs, after others were added. `before` was the highest number until then: what lies below its bound
-- is gone already, and to pass over it again takes the longer, the longer a snapshot is open elsewhere.
create function trim_history_1(before bigint, history_ bigint) returns void language plpgsql volatile as $$
begin
  delete from runs where seq > before - history_ and seq <= (select max(seq) from runs) - history_;
end $$;

-- Lower what lies too far ahead of the clock (SPEC 2.5); null if nothing does. Minutes of every zone have begun with
-- those of UTC since 1972.
create function correct_1(me_key int, seq_ bigint, now_ bigint) returns jsonb language plpgsql volatile as $$
declare
  minute_ bigint := now_ / 60000000 * 60;
  too_far bigint := minute_ + 10800;
  many int; all_ int := 0;
begin
  with far as materialized (
    select s.generation, case
      when s.last_attempt_at is not null then case when s.served_through > too_far then minute_ else s.served_through end
      when m.served_through > too_far then minute_
      when s.served_through + 60 > too_far then greatest(minute_ - 60, m.served_through)
      else s.served_through end as lowered, s.served_through
    from states s join tasks t on t.generation = s.generation left join marks m on m.name = t.name
  ), lowered_tasks as (
    update tasks t set known_since = now_ from far
      where t.generation = far.generation and far.lowered <> far.served_through and t.known_since > now_
      returning 1
  ), lowered_states as (
    update states s set served_through = far.lowered, written_by = me_key, changed = seq_ from far
      where s.generation = far.generation and far.lowered <> far.served_through
      returning 1
  )
  select (select count(*) from lowered_tasks) + (select count(*) from lowered_states) into all_;
  update tasks set known_since = now_ where retired_at is null and known_since >= 1000000 * (too_far + 60);
  get diagnostics many = row_count;
  all_ := all_ + many;
  update marks set served_through = minute_, retired_at = now_ where served_through > too_far;
  get diagnostics many = row_count;
  all_ := all_ + many;
  update states s set pending_retry_until = now_ + 1000 * greatest(1000, t.delay_ms), written_by = me_key, changed = seq_
    from tasks t
    where t.generation = s.generation and s.pending_retry_until > now_ + 1000 * greatest(1000, t.delay_ms);
  get diagnostics many = row_count;
  all_ := all_ + many;
  return case when all_ > 0 then jsonb_build_object('at', now_, 'minute', minute_) end;
end $$;

-- A host is gone: its runs become history, nothing waits for its strays, and its edition may have lost its last host.
create function take_leave_1(who int, seq_ bigint) returns void language plpgsql volatile as $$
declare
  last_ bigint := coalesce((select max(seq) from runs), 0);
  history_ bigint := (cluster_1()).history;
begin
  if history_ > 0 then
    insert into runs (seq, run, generation, host, cause, scheduled, started_at, outcome, first_started_at, attempt)
      select last_ + row_number() over (order by s.generation), s.run, s.generation, who, s.run_cause, s.run_scheduled,
             s.last_attempt_at, 'interrupted', s.first_started_at, s.attempt
      from states s where s.run / 1000000000000 = who;
    perform trim_history_1(last_, history_);
  end if;
  update states s set blocked_by = null, changed = seq_
    from strays y where y.host = who and s.generation = y.successor;
  delete from strays where host = who;
  update cluster c set edition_alone_since = (select max(h.renewed_at) from hosts h where h.edition = c.edition)
    where c.edition > 0 and c.edition_alone_since is null
      and not exists (select from hosts h where h.edition = c.edition and h.gone is null);
end $$;

-- Remove entries that every running host has read, and in any case those beyond `entries_kept` that are older than
-- `kept_for`; of a running host the last numbered entry stays, because it is the answer to a repetition, and entries of
-- the trace stay. What had to stay and need not any more is removed by a call that sweeps: it begins at the beginning, and
-- to pass over entries that are gone takes the longer, the longer a snapshot is open elsewhere.
create function prune_1(entries_kept bigint, kept_for bigint, rows_max int, sweeps boolean default true)
returns bigint language plpgsql volatile as $$
declare
  c cluster := cluster_1();
  before bigint := c.pruned;
  last_ bigint := (select max(seq) from log);
  lowest bigint := coalesce((select min(seen) from hosts where gone is null), last_);
  trace_first_ bigint := coalesce((select min(first) from bases), last_ + 1);
  trace_last_ bigint := coalesce(c.trace_last, last_);
  answers bigint[];
  forced bigint; bound bigint;
begin
  if last_ is null then return before; end if;
  select max(old.seq) into forced
    from (select l.seq, l.at from log l where l.seq > before order by l.seq limit rows_max) old
    where old.seq <= last_ - entries_kept and old.at < clock_1() - kept_for;
  bound := least(greatest(lowest - 1, forced), before + rows_max, last_ - 1);
  if bound > before then
    answers := array(select (select l.seq from log l where l.host = h.key order by l.number desc limit 1)
      from hosts h where h.gone is null);
    delete from log where seq in (
      select l.seq from log l
      where l.seq > case when sweeps then 0 else before end and l.seq <= bound
        and (l.seq < trace_first_ or l.seq > trace_last_) and array_position(answers, l.seq) is null
      order by l.seq limit rows_max);
    update cluster set pruned = bound;
    return bound;
  end if;
  return before;
end $$;

-- --- the functions that hosts call ---------------------------------------------------------------------------------

create function write_1(me_key int, me_identifier uuid, number_ bigint, seen_ bigint, nonce_ uuid, entry_ jsonb)
returns jsonb language plpgsql volatile set search_path = :"schema", pg_temp set lock_timeout = '5s' as $$
declare
  seq_ bigint := enter_1();
  known log;
  now_ bigint;
  block jsonb;
  generations bigint[];
  runs_ bigint[];
  found_ bigint[];
  refused_ bigint[] := '{}';
  fenced_ bigint[] := '{}';
  lost bigint[];
  many int := coalesce(jsonb_array_length(entry_ -> 'notes'), 0);
  corrected jsonb;
  repeats boolean;
  history_ bigint;
  last_ bigint;
  mark_ uuid;
begin
  perform check_host_1(me_key, me_identifier);
  perform check_position_1(seen_, nonce_);
  select * into known from log where host = me_key and number = number_;
  if found then
    return jsonb_build_object('seq', known.seq, 'nonce', known.nonce, 'refused', coalesce(known.refused, '{}')::text,
      'fenced', coalesce(known.entry ->> 'fenced', '{}'), 'corrected', known.entry -> 'corrected');
  end if;
  now_ := clock_1();
  if jsonb_array_length(entry_ -> 'ends') > 0 then
    history_ := (cluster_1()).history;
    last_ := coalesce((select max(seq) from runs), 0);
  end if;

  for block in select * from jsonb_array_elements(entry_ -> 'ends') loop
    generations := (block ->> 'g')::bigint[];
    runs_ := (block ->> 'r')::bigint[];
    repeats := block ->> 'cause' <> 'cron';
    many := many + cardinality(runs_);
    lost := null;
    if block ? 'error' then
      with recorded as (
        update states s set last_failure_at = (block ->> 'at')::bigint, pending_retry_until = (block ->> 'retry')::bigint,
          failures = (block ->> 'failures')::int, interruptions = 0, run = null, run_cause = null, run_scheduled = null,
          written_by = me_key, first_started_at = (block #>> '{of,0}')::bigint,
          first_scheduled = (block #>> '{of,1}')::bigint, attempt = (block #>> '{of,2}')::int, changed = seq_
        from unnest(generations, runs_) as e(generation, run) where s.generation = e.generation and s.run = e.run
        returning e.run)
      select coalesce(array_agg(run), '{}') into found_ from recorded;
    else
      with recorded as (
        update states s set last_success_at = (block ->> 'at')::bigint, pending_retry_until = null, failures = 0,
          interruptions = 0, run = null, run_cause = null, run_scheduled = null, written_by = me_key,
          first_started_at = null, first_scheduled = null, attempt = null, changed = seq_
        from unnest(generations, runs_) as e(generation, run) where s.generation = e.generation and s.run = e.run
        returning e.run)
      select coalesce(array_agg(run), '{}') into found_ from recorded;
    end if;
    if cardinality(found_) < cardinality(runs_) then
      update states s set blocked_by = null, changed = seq_
        from strays y where y.run = any (runs_) and s.generation = y.successor;
      with over as (delete from strays y where y.run = any (runs_) returning y.run)
      select found_ || coalesce(array_agg(run), '{}') into found_ from over;
      select coalesce(array_agg(e.run order by e.n), '{}') into lost
        from unnest(runs_) with ordinality as e(run, n)
        where not exists (select from unnest(found_) as there(run) where there.run = e.run);
      fenced_ := fenced_ || lost;
    end if;
    if history_ > 0 then
      -- After the states, which say by themselves what is on record: to look for their rows a second time is dear when
      -- a snapshot that is open elsewhere keeps every version of them.
      insert into runs (seq, run, generation, host, cause, scheduled, started_at, ended_at, outcome, error, traceback,
                        first_started_at, attempt, called_at)
        select coalesce((select max(seq) from runs), 0) + row_number() over (order by e.n), e.run, e.generation, me_key,
               block ->> 'cause', (block ->> 'scheduled')::bigint, (block ->> 'started')::bigint,
               (block ->> 'at')::bigint, case when block ? 'error' then 'failure' else 'success' end,
               block ->> 'error', block ->> 'traceback',
               case when repeats then (block #>> '{of,0}')::bigint end,
               case when repeats then (block #>> '{of,2}')::int end,
               (block ->> 'called')::bigint
        from unnest(generations, runs_) with ordinality as e(generation, run, n)
        where lost is null or not exists (select from unnest(lost) as missing(run) where missing.run = e.run);
    end if;
  end loop;

  for block in select * from jsonb_array_elements(entry_ -> 'starts') loop
    generations := (block ->> 'g')::bigint[];
    found_ := '{}';
    repeats := block ->> 'cause' <> 'cron';
    many := many + cardinality(generations);
    if (block ->> 'at')::bigint <= now_ then
      with granted as (
        update states s set served_through = (block ->> 'mark')::bigint, last_attempt_at = (block ->> 'at')::bigint,
          pending_retry_until = (block ->> 'retry')::bigint, interruptions = (block ->> 'interruptions')::int,
          run = (block ->> 'run')::bigint + e.n - 1, run_cause = block ->> 'cause',
          run_scheduled = (block ->> 'scheduled')::bigint, written_by = me_key, changed = seq_,
          first_started_at = case when repeats then (block #>> '{of,0}')::bigint end,
          first_scheduled = case when repeats then (block #>> '{of,1}')::bigint end,
          attempt = case when repeats then (block #>> '{of,2}')::int end
        from unnest(generations) with ordinality as e(generation, n)
        where s.generation = e.generation and s.changed <= seen_ and s.blocked_by is null
          and (s.run is null or not is_living_1(s.run / 1000000000000))
        returning s.generation)
      select coalesce(array_agg(generation), '{}') into found_ from granted;
    end if;
    if cardinality(found_) < cardinality(generations) then
      select array_agg(e.generation order by e.n) into lost
        from unnest(generations) with ordinality as e(generation, n)
        where not exists (select from unnest(found_) f where f = e.generation);
      refused_ := refused_ || lost;
    end if;
  end loop;

  if (entry_ -> 'correct')::boolean then
    corrected := correct_1(me_key, seq_, now_);
  end if;
  if history_ > 0 then perform trim_history_1(last_, history_); end if;
  insert into log (seq, host, number, at, kind, entry, refused, events) values (seq_, me_key, number_, now_, 'written',
    jsonb_strip_nulls((entry_ - 'correct') || jsonb_build_object('corrected', corrected,
      'fenced', case when fenced_ <> '{}' then fenced_::text end)),
    nullif(refused_, '{}'), many) returning nonce into mark_;
  if seq_ % 100 = 0 then
    perform rotate_trace_1(250000);
    perform prune_1(100000, 3600000000, 5000, seq_ % 2000 = 0);
  end if;
  return jsonb_build_object('seq', seq_, 'nonce', mark_, 'refused', refused_::text, 'fenced', fenced_::text,
    'corrected', corrected);
end $$;

-- Without the mutex, so that a host lives although a writer waits. `held` is for how many microseconds the host has not
-- trusted its lease.
create function beat_1(
  me_key int, me_identifier uuid, seen_ bigint, nonce_ uuid, held bigint default 0, fault_ text default null)
returns jsonb language plpgsql volatile set search_path = :"schema", pg_temp set lock_timeout = '5s' as $$
declare now_ bigint;
begin
  -- First: a host whose log was set back has not beaten.
  perform check_host_1(me_key, me_identifier);
  perform check_position_1(seen_, nonce_);
  now_ := clock_1();
  update hosts set beat = beat + 1, renewed_at = moment_1(now_), seen = seen_, fault = fault_
    where key = me_key and identifier = me_identifier and gone is null;
  if not found then perform check_host_1(me_key, me_identifier); end if;
  if held > 0 then
    -- A host that did not get the answer beats again, and tells of the same hold, which was longer.
    delete from holds where host = me_key and until > now_ - held;
    insert into holds values (me_key, now_ - held, now_);
  end if;
  return (select jsonb_build_object('clock', now_, 'seq', coalesce((select max(seq) from log), 0),
    'living', coalesce((select jsonb_agg(jsonb_build_array(h.key, h.beat, h.edition,
      (extract(epoch from h.lease) * 1000000)::bigint) order by h.key) from hosts h where h.gone is null), '[]')));
end $$;

-- A host may bury itself, whatever its beat: its event loop is going away.
create function bury_1(me_key int, me_identifier uuid, who int, beat_ bigint)
returns jsonb language plpgsql volatile set search_path = :"schema", pg_temp set lock_timeout = '5s' as $$
declare seq_ bigint := enter_1();
begin
  perform check_host_1(me_key, me_identifier);
  update hosts set gone = 'b' where key = who and gone is null and (beat = beat_ or key = me_key);
  if not found then return jsonb_build_object('seq', null); end if;
  perform take_leave_1(who, seq_);
  insert into log (seq, host, number, at, kind, entry)
    values (seq_, me_key, -seq_, clock_1(), 'buried', jsonb_build_object('host', who));
  return jsonb_build_object('seq', seq_);
end $$;

create function leave_1(me_key int, me_identifier uuid, notes_ jsonb)
returns jsonb language plpgsql volatile set search_path = :"schema", pg_temp set lock_timeout = '5s' as $$
declare
  seq_ bigint := enter_1();
  now_ bigint := clock_1();
begin
  if exists (select from hosts where key = me_key and identifier = me_identifier and gone = 'l') then
    return jsonb_build_object('seq', (select max(seq) from log where host = me_key and kind = 'left'));
  end if;
  perform check_host_1(me_key, me_identifier);
  update hosts set gone = 'l', renewed_at = moment_1(now_) where key = me_key;
  perform take_leave_1(me_key, seq_);
  insert into log (seq, host, number, at, kind, entry) values (seq_, me_key, -seq_, now_, 'left',
    case when jsonb_array_length(notes_) > 0 then jsonb_build_object('notes', notes_) else '{}' end);
  return jsonb_build_object('seq', seq_);
end $$;

create function answer_of_replacement_1(known log) returns jsonb language sql immutable as $$
  select jsonb_build_object('verdict', case when known.kind = 'replaced' then 'applied'
      when (known.entry -> 'outdated')::boolean then 'outdated' else 'joined' end,
    'key', known.host, 'seq', known.seq, 'edition', known.entry -> 'edition', 'at', known.at,
    'first_generation', known.entry -> 'first_generation', 'known_since', known.entry -> 'known_since')
$$;

-- Join, declare, declare anew or reinstate. `ask` holds: identifier, key (null when joining), number, seen, nonce, act
-- ('join', 'rejoin', 'redeclare', 'reinstate'), label, lease (microseconds), digest, edition and generation (what was
-- resolved against), shares_names, removed (generations), arrivals and arrivals_digest (what was sent to `arriving`),
-- zone, zone_seen, history, traced, correct, said (what the trace has of the call), to_threads and to_loop (places that
-- changed: two arrays, of the first and of the last generation of each span).
create function replace_1(ask jsonb)
returns jsonb language plpgsql volatile set search_path = :"schema", pg_temp set lock_timeout = '5s' as $$
declare
  seq_ bigint := enter_1();
  now_ bigint;
  me hosts;
  mine boolean;                          -- whether this host has a row already
  c cluster;
  known log;
  identifier_ uuid := (ask ->> 'identifier')::uuid;
  act text := ask ->> 'act';
  removed_ bigint[] := (ask ->> 'removed')::bigint[];
  edition_ bigint;
  known_edition bigint;
  takes boolean := false;
  outdated boolean := false;
  foreign_ boolean;
  in_force_lives boolean;
  highest bigint;                        -- edition among the other running hosts
  known_since_ bigint;
  fresh bigint;
  corrected jsonb;
  blocked jsonb := '[]';
  moved jsonb := '{}';
  renumbered bigint[];                   -- other hosts that declare the set
begin
  select * into me from hosts h where h.identifier = identifier_
    and (ask ->> 'key' is null or h.key = (ask ->> 'key')::int);
  mine := found;
  if mine or ask ->> 'key' is not null then
    perform check_host_1(coalesce(me.key, (ask ->> 'key')::int), identifier_);
  end if;
  perform check_position_1((ask ->> 'seen')::bigint, (ask ->> 'nonce')::uuid);
  if mine then
    select * into known from log where host = me.key and number = (ask ->> 'number')::bigint;
    if found then return answer_of_replacement_1(known); end if;
  end if;
  now_ := clock_1();
  select * into c from cluster;

  if (c.edition, c.generation) <> ((ask ->> 'edition')::bigint, (ask ->> 'generation')::bigint)
     or c.zone is distinct from ask ->> 'zone_seen' then
    return jsonb_build_object('verdict', 'again');
  end if;
  select max(h.edition), coalesce(bool_or(h.edition = c.edition), false) into highest, in_force_lives
    from hosts h where h.gone is null and h.key is distinct from me.key;
  if c.zone <> ask ->> 'zone' and highest is not null then
    raise exception 'other hosts run in the zone %', c.zone using errcode = 'DU007', detail = c.zone;
  end if;

  if act = 'reinstate' then
    edition_ := me.edition;
    in_force_lives := in_force_lives or edition_ = c.edition;
    takes := not in_force_lives and edition_ >= coalesce(highest, 0);
    outdated := not takes and edition_ <> c.edition;
  elsif exists (select from editions e where e.edition = c.edition and e.digest = ask ->> 'digest') then
    edition_ := c.edition;
  else
    foreign_ := act in ('join', 'rejoin') and in_force_lives and not (ask -> 'shares_names')::boolean
      and exists (select from tasks where retired_at is null);
    if foreign_ and act = 'join' then
      raise exception 'the set shares no name with the set in force' using errcode = 'DU006';
    end if;
    select max(edition) into known_edition from editions where digest = ask ->> 'digest';
    if act = 'redeclare' or known_edition is null then
      edition_ := coalesce((select max(edition) from editions), 0) + 1;
    else
      edition_ := known_edition;
    end if;
    takes := not foreign_ and edition_ > coalesce(highest, 0);
    outdated := not takes;
  end if;

  if takes and (select (count(*), coalesce(digest_1(string_agg(digest_1(format('%s %s %s %s %s', a.place, a.delay_ms,
        length(a.cron), a.cron, a.name)), '' order by a.place)), ''))
      is distinct from ((ask ->> 'arrivals')::bigint, ask ->> 'arrivals_digest')
      from arriving a where a.host = identifier_) then
    return jsonb_build_object('verdict', 'again');
  end if;

  insert into editions values (edition_, ask ->> 'digest', moment_1(now_)) on conflict do nothing;
  if mine then
    update hosts set edition = edition_, declaration = (ask ->> 'number')::bigint where key = me.key;
  else
    -- Above every key that was ever used, although somebody may have emptied a table by hand: runs bear it.
    insert into hosts values (1 + greatest(0, (select max(key) from hosts),
        coalesce((select max(host) from log), (select max(run) / 1000000000000 from states))),
      identifier_, ask ->> 'label', now_,
      (ask ->> 'lease')::bigint * interval '1 microsecond', edition_, (ask ->> 'number')::bigint, 0, moment_1(now_),
      (ask ->> 'seen')::bigint,
      (ask #>> '{said,max_concurrency}')::bigint, (ask #>> '{said,threads}')::bigint, null)
      returning * into me;
    -- Declarations that are neither in force, nor in history, nor in the trace any more.
    delete from tasks t where t.retired_at is not null
      and t.generation <= coalesce((select min(b.generation) from bases b), t.generation)
      and not exists (select from runs r where r.generation = t.generation)
      and not exists (select from strays y where y.generation = t.generation);
  end if;
  if (ask -> 'correct')::boolean then
    corrected := correct_1(me.key, seq_, now_);
  end if;

  -- `history` and `trace` are those of the host that puts the set in force, or finds no other host there.
  if takes or (not outdated and highest is null) then
    if (ask -> 'traced')::boolean and not c.traced then
      perform begin_trace_1(seq_, now_, case when not mine then me.key end);
      perform forget_bases_1((select max(segment) from bases));
    end if;
    if (ask ->> 'history')::bigint < c.history then
      delete from runs where seq <= (select max(seq) from runs) - (ask ->> 'history')::bigint;
    end if;
    update cluster set history = (ask ->> 'history')::bigint, traced = (ask -> 'traced')::boolean,
      trace_last = case when (ask -> 'traced')::boolean then null when c.traced then seq_ - 1 else c.trace_last end;
  end if;
  if takes then
    known_since_ := case when act = 'reinstate' and c.edition_alone_since is not null
      then least(now_, (extract(epoch from c.edition_alone_since) * 1000000)::bigint) else now_ end;
    fresh := known_since_ / 60000000 * 60 - 60;
    delete from marks where 1000000 * served_through < now_ - 86400000000;
    insert into marks as m
      select t.name, s.served_through, now_ from states s join tasks t on t.generation = s.generation
      where s.generation = any (removed_) and s.last_attempt_at is not null
        and 1000000 * s.served_through >= now_ - 86400000000
      on conflict (name) do update
        set served_through = greatest(m.served_through, excluded.served_through), retired_at = excluded.retired_at;
    -- A name that no start has served since keeps its mark; it is withdrawn now.
    update marks m set retired_at = now_ from states s join tasks t on t.generation = s.generation
      where s.generation = any (removed_) and s.last_attempt_at is null and m.name = t.name;
    update strays set successor = null where successor = any (removed_);
    insert into strays as y
      select t.name, s.run, s.run / 1000000000000, s.generation, null
      from states s join tasks t on t.generation = s.generation
      where s.generation = any (removed_) and is_living_1(s.run / 1000000000000)
      on conflict (name) do update
        set run = excluded.run, host = excluded.host, generation = excluded.generation, successor = null;
    delete from states where generation = any (removed_);
    update tasks set retired_at = now_ where generation = any (removed_) and retired_at is null;
    insert into tasks
      select c.generation + a.place, a.name, a.cron, a.delay_ms, known_since_, null, false
      from arriving a where a.host = identifier_ order by a.place;
    insert into states (generation, served_through, failures, interruptions, written_by, changed, blocked_by)
      select c.generation + a.place, greatest(fresh, m.served_through), 0, 0, me.key, seq_, y.run
      from arriving a left join marks m on m.name = a.name left join strays y on y.name = a.name
      where a.host = identifier_ order by a.place;
    update strays y set successor = c.generation + a.place from arriving a where a.host = identifier_ and a.name = y.name;
    select coalesce(jsonb_agg(jsonb_build_array(y.successor, y.run::text) order by y.successor), '[]') into blocked
      from strays y where y.successor > c.generation;
    -- A set that comes back has another number, for every host that declares it (SPEC 9.15).
    with alike as (
      update hosts h set edition = edition_ from editions mine join editions theirs on theirs.digest = mine.digest
        where mine.edition = edition_ and theirs.edition = h.edition and h.edition <> edition_ and h.gone is null
        returning h.key
    )
    select array_agg(key order by key) into renumbered from alike;
    if c.interrupted <> ask #>> '{said,interrupted}' then
      -- What was decided about these runs by the other option is not granted any more.
      update states set changed = seq_ where run is not null and not is_living_1(run / 1000000000000);
    end if;
    update cluster set generation = c.generation + (ask ->> 'arrivals')::bigint, edition = edition_,
      edition_alone_since = null, interrupted = ask #>> '{said,interrupted}', zone = ask ->> 'zone';
  else
    update cluster set zone = ask ->> 'zone',
      edition_alone_since = case when edition_ <> c.edition then c.edition_alone_since end
      where zone is distinct from ask ->> 'zone' or edition_alone_since is not null;
  end if;
  if not outdated then
    moved := jsonb_strip_nulls(jsonb_build_object('to_threads', ask -> 'to_threads', 'to_loop', ask -> 'to_loop'));
    update tasks t set thread = spans.thread
      from (select unnest((ask #>> '{to_threads,0}')::bigint[]) as first, unnest((ask #>> '{to_threads,1}')::bigint[]) as last,
                   true as thread
            union all
            select unnest((ask #>> '{to_loop,0}')::bigint[]), unnest((ask #>> '{to_loop,1}')::bigint[]), false) spans
      where t.generation between spans.first and spans.last and t.retired_at is null;
  end if;
  delete from arriving where host = identifier_ or at < moment_1(now_ - 3600000000);

  insert into log (seq, host, number, at, kind, entry, events) values (seq_, me.key, (ask ->> 'number')::bigint, now_,
    case when takes then 'replaced' else 'joined' end,
    moved || jsonb_strip_nulls(case when takes
      then jsonb_build_object('edition', edition_, 'known_since', known_since_, 'first_generation', c.generation + 1,
        'added', (ask ->> 'arrivals')::bigint, 'removed', ask ->> 'removed', 'blocked', blocked,
        'renumbered', renumbered::text,
        'reinstated', act = 'reinstate', 'zone', ask ->> 'zone', 'corrected', corrected, 'said', ask -> 'said',
        'label', case when not mine then me.label end)
      else jsonb_build_object('edition', edition_, 'outdated', outdated, 'zone', ask ->> 'zone', 'corrected', corrected,
        'said', ask -> 'said', 'label', case when not mine then me.label end) end),
    1 + case when takes then (ask ->> 'arrivals')::int + cardinality(removed_) else 0 end)
    returning * into known;
  return answer_of_replacement_1(known);
end $$;

-- For callbacks, in a transaction of their own in this database: what it writes is undone if a later run of the task has
-- passed here. The transactions of two runs wait for each other; those of hosts wait for none of them.
create function guard(task_ text, fence_ bigint) returns void language plpgsql volatile
set search_path = :"schema", pg_temp as $$
begin
  insert into fences as f values (task_, fence_)
    on conflict (task) do update set fence = excluded.fence where f.fence <= excluded.fence;
  if not found then
    raise exception 'a later run of task % has passed the guard', task_
      using errcode = 'DU008', hint = 'another host has taken the task over: let this run end';
  end if;
end $$;

revoke execute on all functions in schema :"schema" from public;
