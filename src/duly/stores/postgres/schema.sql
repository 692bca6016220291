-- The shared store of duly, version 1, for PostgreSQL 13 and later: inside a transaction, in a schema that is empty.
-- `psql -v schema=duly` reads it as it is.
--
-- One schema is one scheduler. All writes go through the functions below, one call in one message that is one
-- transaction; an advisory lock makes them one after the other, and each appends one entry to `log`. Instants are
-- microseconds since the epoch, minutes are seconds, as in the embedded store; a timestamptz is for people.
-- There is no sequence and no identity column: a backup, a replica or a logical copy of the tables is a whole store.

set local search_path = :"schema", pg_temp;

create table cluster (
  one boolean primary key default true check (one),
  version int not null,
  generation bigint not null,            -- the highest generation used
  edition bigint not null,               -- the one in force; 0: none yet
  edition_alone_since timestamptz,       -- since when no running host declares it
  zone text,
  pruned bigint not null,                -- entries of the log up to this one may be gone
  history bigint not null,               -- run records kept
  traced boolean not null,
  trace_seq bigint not null,             -- the trace goes on from here when its table is empty
  trace_hash bytea not null
);

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
  edition bigint not null,
  beat bigint not null,
  renewed_at timestamptz not null,       -- for people, and for edition_alone_since
  seen bigint not null,
  gone "char"                            -- null, 'l'eft, 'b'uried: one way
) with (fillfactor = 50);

create table tasks (
  generation bigint primary key,
  name text not null,
  cron text not null,
  delay_ms bigint not null,
  known_since bigint not null,
  retired_at bigint
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
  name text primary key,
  run bigint not null,
  host int not null,
  generation bigint not null,
  successor bigint
);

create table marks (
  name text primary key,
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
  unique (host, number)
);

create table trace (
  first bigint primary key,
  count int not null,
  lines text not null,
  hash bytea not null
);

-- New declarations on their way, written before the call that puts them in force.
create table arriving (
  host uuid not null,
  at timestamptz not null,
  place int not null,
  name text not null,
  cron text not null,
  delay_ms bigint not null,
  primary key (host, place)
);

insert into cluster values (true, 1, 0, 0, null, null, 0, 100000, false, 0, '');

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
  return coalesce((select max(seq) from log), 0) + 1;
end $$;

-- The fence: a host without a row, or gone, changes nothing.
create function check_host_1(me_key int, me_identifier uuid) returns void language plpgsql stable as $$
declare how "char";
begin
  select gone into how from hosts where key = me_key and identifier = me_identifier;
  if not found then
    raise exception 'host % is not on record', me_key using errcode = 'DU001', detail = 'missing ' || me_key;
  elsif how is not null then
    raise exception 'host % is gone', me_key
      using errcode = 'DU001', detail = case how when 'b' then 'buried ' else 'left ' end || me_key;
  end if;
end $$;

-- A database that was set back has another entry at this position, or none.
create function check_position_1(seen_ bigint, nonce_ uuid) returns void language plpgsql stable as $$
begin
  if seen_ > (select pruned from cluster)
     and not exists (select from log l where l.seq = seen_ and l.nonce is not distinct from nonce_) then
    raise exception 'entry % of the log is not there', seen_ using errcode = 'DU004', detail = seen_;
  end if;
end $$;

-- Each line comes with the number of its run, or null; a line of a run that was refused or fenced is not kept.
create function append_trace_1(trace_ jsonb, dropped bigint[]) returns void language plpgsql volatile as $$
declare kept text; many int; first_ bigint; before bytea;
begin
  select string_agg(each.row ->> 1, E'\n' order by each.n), count(*) into kept, many
    from jsonb_array_elements(trace_) with ordinality as each(row, n)
    where not exists (select from unnest(dropped) as lost(run) where lost.run = (each.row ->> 0)::bigint);
  if many > 0 then
    select t.first + t.count, t.hash into first_, before from trace t order by t.first desc limit 1;
    if not found then
      select c.trace_seq + 1, c.trace_hash into first_, before from cluster c;
    end if;
    insert into trace values (first_, many, kept, sha256(before || convert_to(kept, 'UTF8')));
  end if;
end $$;

create function trim_history_1() returns void language sql volatile
  as $$ delete from runs where seq <= (select max(seq) from runs) - (select history from cluster) $$;

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
declare last_ bigint := coalesce((select max(seq) from runs), 0);
begin
  if (select history from cluster) > 0 then
    insert into runs (seq, run, generation, host, cause, scheduled, started_at, outcome, first_started_at, attempt)
      select last_ + row_number() over (order by s.generation), s.run, s.generation, who, s.run_cause, s.run_scheduled,
             s.last_attempt_at, 'interrupted', s.first_started_at, s.attempt
      from states s where s.run / 1000000000000 = who;
  end if;
  perform trim_history_1();
  update states s set blocked_by = null, changed = seq_
    from strays y where y.host = who and s.generation = y.successor;
  delete from strays where host = who;
  update cluster c set edition_alone_since = (select max(h.renewed_at) from hosts h where h.edition = c.edition)
    where c.edition > 0 and c.edition_alone_since is null
      and not exists (select from hosts h where h.edition = c.edition and h.gone is null);
end $$;

-- Remove entries that every running host has read, and in any case those beyond `entries_kept` that are older than
-- `kept_for`; of a running host the last numbered entry stays, because it is the answer to a repetition.
create function prune_1(entries_kept bigint, kept_for bigint, rows_max int) returns bigint language plpgsql volatile as $$
declare
  before bigint := (select pruned from cluster);
  last_ bigint := (select max(seq) from log);
  lowest bigint := coalesce((select min(seen) from hosts where gone is null), last_);
  forced bigint; bound bigint;
begin
  if last_ is null then return before; end if;
  select max(old.seq) into forced
    from (select l.seq, l.at from log l where l.seq > before order by l.seq limit rows_max) old
    where old.seq <= last_ - entries_kept and old.at < clock_1() - kept_for;
  bound := least(greatest(lowest - 1, forced), before + rows_max, last_ - 1);
  if bound > before then
    delete from log l where l.seq <= bound and not exists (
      select from hosts h where h.key = l.host and h.gone is null
        and l.number = (select max(m.number) from log m where m.host = h.key));
    update cluster set pruned = bound;
    return bound;
  end if;
  return before;
end $$;

-- --- the functions that hosts call ---------------------------------------------------------------------------------

create function write_1(me_key int, me_identifier uuid, number_ bigint, seen_ bigint, nonce_ uuid, entry_ jsonb, trace_ jsonb)
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
  dropped bigint[] := '{}';
  lost bigint[];
  corrected jsonb;
  repeats boolean;
  keeps boolean;
  last_ bigint;
begin
  perform check_host_1(me_key, me_identifier);
  perform check_position_1(seen_, nonce_);
  select * into known from log where host = me_key and number = number_;
  if found then
    return jsonb_build_object('seq', known.seq, 'refused', coalesce(known.refused, '{}')::text,
      'fenced', coalesce(known.entry ->> 'fenced', '{}'), 'corrected', known.entry -> 'corrected');
  end if;
  now_ := clock_1();
  keeps := (select history > 0 from cluster);

  for block in select * from jsonb_array_elements(entry_ -> 'ends') loop
    generations := (block ->> 'g')::bigint[];
    runs_ := (block ->> 'r')::bigint[];
    repeats := block ->> 'cause' <> 'cron';
    if keeps then
      last_ := coalesce((select max(seq) from runs), 0);
      insert into runs (seq, run, generation, host, cause, scheduled, started_at, ended_at, outcome, error, traceback,
                        first_started_at, attempt, called_at)
        select last_ + row_number() over (order by e.n), e.run, e.generation, me_key, block ->> 'cause',
               (block ->> 'scheduled')::bigint, (block ->> 'started')::bigint, (block ->> 'at')::bigint,
               case when block ? 'error' then 'failure' else 'success' end, block ->> 'error', block ->> 'traceback',
               case when repeats then (block #>> '{of,0}')::bigint end,
               case when repeats then (block #>> '{of,2}')::int end,
               (block ->> 'called')::bigint
        from unnest(generations, runs_) with ordinality as e(generation, run, n)
          left join states s on s.generation = e.generation and s.run = e.run
          left join strays y on y.run = e.run
        where s.generation is not null or y.run is not null;
    end if;
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
  end loop;

  for block in select * from jsonb_array_elements(entry_ -> 'starts') loop
    generations := (block ->> 'g')::bigint[];
    found_ := '{}';
    repeats := block ->> 'cause' <> 'cron';
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
      select array_agg(e.generation order by e.n), array_agg((block ->> 'run')::bigint + e.n - 1 order by e.n)
        into lost, runs_
        from unnest(generations) with ordinality as e(generation, n)
        where not exists (select from unnest(found_) f where f = e.generation);
      refused_ := refused_ || lost;
      dropped := dropped || runs_;
    end if;
  end loop;

  if (entry_ -> 'correct')::boolean then
    corrected := correct_1(me_key, seq_, now_);
  end if;
  if jsonb_array_length(entry_ -> 'ends') > 0 then perform trim_history_1(); end if;
  insert into log (seq, host, number, at, kind, entry, refused) values (seq_, me_key, number_, now_, 'written',
    jsonb_strip_nulls((entry_ - 'correct') || jsonb_build_object('corrected', corrected,
      'fenced', case when fenced_ <> '{}' then fenced_::text end)),
    nullif(refused_, '{}'));
  perform append_trace_1(trace_, dropped || fenced_);
  if seq_ % 100 = 0 then perform prune_1(100000, 3600000000, 5000); end if;
  return jsonb_build_object('seq', seq_, 'refused', refused_::text, 'fenced', fenced_::text, 'corrected', corrected);
end $$;

-- Without the mutex, so that a host lives although a writer waits.
create function beat_1(me_key int, me_identifier uuid, seen_ bigint, nonce_ uuid)
returns jsonb language plpgsql volatile set search_path = :"schema", pg_temp set lock_timeout = '5s' as $$
declare now_ bigint;
begin
  -- First: a host whose log was set back has not beaten.
  perform check_host_1(me_key, me_identifier);
  perform check_position_1(seen_, nonce_);
  now_ := clock_1();
  update hosts set beat = beat + 1, renewed_at = moment_1(now_), seen = seen_
    where key = me_key and identifier = me_identifier and gone is null;
  if not found then perform check_host_1(me_key, me_identifier); end if;
  return (select jsonb_build_object('clock', now_, 'seq', coalesce((select max(seq) from log), 0),
    'living', coalesce((select jsonb_agg(jsonb_build_array(h.key, h.beat, h.edition,
      (extract(epoch from h.lease) * 1000000)::bigint) order by h.key) from hosts h where h.gone is null), '[]')));
end $$;

-- A host may bury itself, whatever its beat: its event loop is going away.
create function bury_1(me_key int, me_identifier uuid, who int, beat_ bigint, trace_ jsonb)
returns jsonb language plpgsql volatile set search_path = :"schema", pg_temp set lock_timeout = '5s' as $$
declare seq_ bigint := enter_1();
begin
  perform check_host_1(me_key, me_identifier);
  update hosts set gone = 'b' where key = who and gone is null and (beat = beat_ or key = me_key);
  if not found then return jsonb_build_object('seq', null); end if;
  perform take_leave_1(who, seq_);
  insert into log (seq, host, number, at, kind, entry)
    values (seq_, me_key, -seq_, clock_1(), 'buried', jsonb_build_object('host', who));
  perform append_trace_1(trace_, '{}');
  return jsonb_build_object('seq', seq_);
end $$;

create function leave_1(me_key int, me_identifier uuid, trace_ jsonb)
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
  insert into log (seq, host, number, at, kind, entry) values (seq_, me_key, -seq_, now_, 'left', '{}');
  perform append_trace_1(trace_, '{}');
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
-- zone, zone_seen, history, traced, correct.
create function replace_1(ask jsonb, trace_ jsonb)
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
    update hosts set edition = edition_ where key = me.key;
  else
    insert into hosts values (coalesce((select max(key) from hosts), 0) + 1, identifier_, ask ->> 'label', now_,
      (ask ->> 'lease')::bigint * interval '1 microsecond', edition_, 0, moment_1(now_), (ask ->> 'seen')::bigint, null)
      returning * into me;
    -- Declarations that are neither in force nor in history any more.
    delete from tasks t where t.retired_at is not null
      and not exists (select from runs r where r.generation = t.generation)
      and not exists (select from strays y where y.generation = t.generation);
  end if;
  if (ask -> 'correct')::boolean then
    corrected := correct_1(me.key, seq_, now_);
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
      select c.generation + a.place, a.name, a.cron, a.delay_ms, known_since_, null
      from arriving a where a.host = identifier_ order by a.place;
    insert into states (generation, served_through, failures, interruptions, written_by, changed, blocked_by)
      select c.generation + a.place, greatest(fresh, m.served_through), 0, 0, me.key, seq_, y.run
      from arriving a left join marks m on m.name = a.name left join strays y on y.name = a.name
      where a.host = identifier_ order by a.place;
    update strays y set successor = c.generation + a.place from arriving a where a.host = identifier_ and a.name = y.name;
    select coalesce(jsonb_agg(jsonb_build_array(y.successor, y.run::text) order by y.successor), '[]') into blocked
      from strays y where y.successor > c.generation;
    update cluster set generation = c.generation + (ask ->> 'arrivals')::bigint, edition = edition_,
      edition_alone_since = null, zone = ask ->> 'zone', history = (ask ->> 'history')::bigint,
      traced = (ask -> 'traced')::boolean;
  else
    update cluster set zone = ask ->> 'zone',
      edition_alone_since = case when edition_ <> c.edition then c.edition_alone_since end
      where zone is distinct from ask ->> 'zone' or edition_alone_since is not null;
  end if;
  delete from arriving where host = identifier_ or at < moment_1(now_ - 3600000000);

  insert into log (seq, host, number, at, kind, entry) values (seq_, me.key, (ask ->> 'number')::bigint, now_,
    case when takes then 'replaced' else 'joined' end,
    jsonb_strip_nulls(case when takes
      then jsonb_build_object('edition', edition_, 'known_since', known_since_, 'first_generation', c.generation + 1,
        'added', (ask ->> 'arrivals')::bigint, 'removed', ask ->> 'removed', 'blocked', blocked,
        'reinstated', act = 'reinstate', 'zone', ask ->> 'zone', 'corrected', corrected)
      else jsonb_build_object('edition', edition_, 'outdated', outdated, 'corrected', corrected) end))
    returning * into known;
  perform append_trace_1(trace_, '{}');
  return answer_of_replacement_1(known);
end $$;

revoke execute on all functions in schema :"schema" from public;
