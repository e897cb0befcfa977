// What the page of a job says of a mirror: how many of its databases are up to date, how far it is behind, and which fail.

import { compareMirror, forEach, isPaused, verifyMirror } from "./actions";
import type { Job, Jobs, Lags, MirrorInfo, ReplicationDocument } from "./api";
import { Failover } from "./failover";
import { useView, withQuery } from "./http";
import { Action, Fact, For, groupBy, jobHref, jobName, Loaded, Panel, Since, StateBadge, Table, Trouble } from "./parts";
import { Plot } from "./plot";
import { hrefOf } from "./route";
import { statesByNeed } from "./state";
import { count, duration, endpoint, some } from "./text";
import { hasEnded, markOf, Why } from "./why";

/** The states of databases, the ones that somebody has to look at first. */
const states: [state: string, text: string, bad?: boolean][] = [
  ["failing", "failing", true],
  ["failed", "failed", true],
  ["elsewhere", "replicated by another job"],
  ["waiting", "waiting for their first run"],
  ["starting", "in their first run"],
  ["copying", "copying changes"],
  ["up_to_date", "up to date"],
  ["paused", "paused"],
  ["gone", "deleted at the source, to be deleted at the target"],
];

export function MirrorPanels({ job, mirror, doc }: { job: Job; mirror: MirrorInfo; doc?: ReplicationDocument }) {
  const list = hrefOf(["jobs"], { mirror: job.job_id });
  return (
    <>
      <Panel title="Databases" aside={<a href={list}>All</a>}>
        <Bar mirror={mirror} />
        {mirror.error && mirror.error !== job.condition.fault?.text && (
          <p class="trouble">
            {mirror.error} {mirror.error_since && <For since={mirror.error_since} />}
          </p>
        )}
        <dl>
          {states.map(([state, text, bad]) => (
            <Fact key={state} name={text[0]!.toUpperCase() + text.slice(1)}>
              {mirror.states[state] ? <span class={bad ? "bad" : undefined}>{count(mirror.states[state])}</span> : undefined}
            </Fact>
          ))}
          <Fact name="Documents written">{count(mirror.docs_written)}</Fact>
          <Fact name="Documents refused">{mirror.doc_write_failures ? <span class="bad">{count(mirror.doc_write_failures)}</span> : undefined}</Fact>
          <Fact name="The list was last read">{mirror.last_look && <Since time={mirror.last_look} />}</Fact>
          <Fact name="Left out">
            {mirror.replicators_left_out && `${mirror.replicators_left_out.join(", ")}, because the target would run their replications, too`}
          </Fact>
          <Fact name="News of databases">{mirror.by && (mirror.by === "feed" ? "by the source's _db_updates" : "by its list, once a minute")}</Fact>
        </dl>
      </Panel>
      <Verified mirror={mirror} />
      <Failing job={job} mirror={mirror} />
      <Lag job={job} mirror={mirror} />
      <Children job={job} list={list} />
      <Failover job={job} mirror={mirror} doc={doc} />
    </>
  );
}

function Bar({ mirror }: { mirror: MirrorInfo }) {
  const current = mirror.states.up_to_date ?? 0;
  const failing = (mirror.states.failing ?? 0) + (mirror.states.failed ?? 0);
  if (!mirror.last_look && mirror.databases === 0) return <p class="muted">The list of the source's databases has not been read yet.</p>;
  return (
    <div class="progress">
      {mirror.databases > 0 && (
        <div class="bar" aria-hidden="true">
          <i style={{ flexGrow: current }} />
          <i class="bad" style={{ flexGrow: failing }} />
          <i class="rest" style={{ flexGrow: Math.max(0, mirror.databases - current - failing) }} />
        </div>
      )}
      <small>
        {count(current)} of {some(mirror.databases, "database")} up to date
        {failing > 0 && <strong class="bad">, {count(failing)} failing</strong>}
      </small>
    </div>
  );
}

/** What can be done with a mirror beside what can be done with each job. */
export function MirrorButtons({ job }: { job: Job }) {
  if (!job.info?.mirror || hasEnded(job)) return null;
  return (
    <>
      {(job.condition.state === "running" || isPaused(job)) && <Action run={() => forEach([job], compareMirror)}>Run now</Action>}
      <Action run={() => forEach([job], verifyMirror)}>Verify</Action>
    </>
  );
}

/** What the latest comparison of both servers has found. */
function Verified({ mirror }: { mirror: MirrorInfo }) {
  const { verified, verifying_since } = mirror;
  return (
    <Panel title="Proof">
      {verifying_since && (
        <p>
          Both servers have been compared <For since={verifying_since} />.
        </p>
      )}
      {!verified && !verifying_since && <p class="muted">Both servers have not been compared. With "verify": "24h" the mirror does that each day.</p>}
      {verified && (
        <p class={verified.different + verified.failed > 0 ? "trouble" : undefined}>
          {verified.different + verified.failed === 0
            ? `The target has everything of ${some(verified.databases, "database")}, ${some(verified.revisions_checked, "revision")}`
            : `${count(verified.different)} of ${some(verified.databases, "database")} different, ${count(verified.failed)} not compared`}
          , verified <Since time={verified.ended} />.
        </p>
      )}
      {verified?.first && (
        <ul class="rows">
          {verified.first.map(({ database, reason }) => (
            <li key={database}>
              {database}
              <p class="bad">{reason}</p>
            </li>
          ))}
        </ul>
      )}
    </Panel>
  );
}

/** How many failing databases are grouped, and how many of a group are listed at once without being asked for. */
const [grouped, openUpTo] = [100, 20];

/** The databases that fail, those with one cause together. What has failed for longest comes first. */
function Failing({ job, mirror }: { job: Job; mirror: MirrorInfo }) {
  const list = { mirror: job.job_id, sort: "failing" };
  const fails = mirror.failures.length > 0;
  const view = useView<Jobs>(fails ? withQuery("_scheduler/jobs", { ...list, limit: grouped }) : undefined);
  const failing = (view.data?.jobs ?? []).map((child) => ({
    database: child.mirrored_database!,
    job_id: child.job_id,
    since: markOf(child.condition, "failing")?.since ?? child.condition.since,
    reason: child.condition.fault?.message ?? child.condition.message,
  }));
  const known = new Set(failing.map((one) => one.database));
  const leftOut = mirror.failures.filter((failure) => !known.has(failure.database)); // databases without jobs
  if (!fails) return null;
  const groups = groupBy([...failing, ...leftOut], ({ database, reason }) => reason.replaceAll(database, "…"));
  return (
    <Panel title="Failing" aside={<a href={hrefOf(["jobs"], list)}>All</a>}>
      <Trouble failure={view.failure} stale={view.data !== undefined} />
      {[...groups].map(([cause, same]) => (
        <details key={cause} class="group" open={same.length <= openUpTo}>
          <summary>
            {same.length === grouped && "More than "}
            {some(same.length, "database")} {same[0]!.since && <For since={same[0]!.since} />}
            <span class="bad">{same.length === 1 ? same[0]!.reason : cause}</span>
          </summary>
          <ul class="names">
            {same.map(({ database, job_id }) => (
              <li key={database}>{job_id ? <a href={jobHref({ job_id })}>{database}</a> : database}</li>
            ))}
          </ul>
        </details>
      ))}
    </Panel>
  );
}

/** The age of the oldest change that may be missing at the target, for a day and now. */
function Lag({ job, mirror }: { job: Job; mirror: MirrorInfo }) {
  const view = useView<Lags>(`_scheduler/jobs/${encodeURIComponent(job.job_id)}/lag`);
  const times = [mirror.behind_since, mirror.unseen_since].flatMap((time) => (time ? [Date.parse(time) / 1000] : []));
  const now = Date.now() / 1000;
  const latest = times.length > 0 ? Math.max(0, now - Math.min(...times)) : 0;
  const lag = latest ? `${duration(latest)} behind` : "not behind";
  return (
    <Panel title="Lag">
      <p>
        {mirror.behind_since ? (
          <>
            A change of <strong>{mirror.behind_database}</strong> may be missing at the target <For since={mirror.behind_since} />.
          </>
        ) : (
          job.condition.state === "paused" ? "The mirror is paused. What has changed since then is copied when it is resumed." : "All changes that settee has heard of are at the target."
        )}
      </p>
      {mirror.unseen_since && (
        <p class="muted">
          A change may be unnoticed <For since={mirror.unseen_since} />, because the source has to be asked. If it has the database _global_changes, and a login may read
          its _db_updates, settee hears of changes at once.
        </p>
      )}
      <Loaded view={view}>
        {({ since, step, lag: lags }) =>
          lags.length === 0 ? (
            <p class="muted">The mirror has not looked in the last day.</p>
          ) : (
            <Plot
              times={[...lags.map((_, i) => since + i * step), now]}
              series={[{ label: "behind", values: [...lags, job.condition.state === "paused" ? null : latest], color: "--running" }]}
              text={`How far the mirror was behind in the last day. It is ${lag}`}
              format={duration}
              least={10}
            />
          )
        }
      </Loaded>
      <small class="muted">The last day, with the largest lag of each five minutes. The metric settee_mirror_lag_seconds has it for longer.</small>
    </Panel>
  );
}

/** How many replications are read, and how many of them are shown. */
const [read, shown] = [100, 10];

/** The other replications, those that are up to date last. */
function Children({ job, list }: { job: Job; list: string }) {
  const view = useView<Jobs>(withQuery("_scheduler/jobs", { mirror: job.job_id, limit: read }));
  const need = ({ condition }: Job) => [...statesByNeed, condition.state].indexOf(condition.state) + (condition.reason === "idle" ? statesByNeed.length : 0);
  return (
    <Panel title="Other replications" aside={<a href={list}>All</a>}>
      <Loaded view={view}>
        {({ jobs }) => {
          const others = jobs.filter((child) => !markOf(child.condition, "failing")).sort((a, b) => need(a) - need(b));
          if (others.length === 0) return <p class="muted">There are none{jobs.length === 0 && " yet"}.</p>;
          return (
            <Table
              head={["State", "Database", "Target", "Why"]}
              rows={others.slice(0, shown).map((child) => ({
                key: child.job_id,
                header: 1,
                cells: [
                  <StateBadge state={child.condition.state} />,
                  <a href={jobHref(child)}>{jobName(child)}</a>,
                  <small>{endpoint(child.target)}</small>,
                  <Why job={child} />,
                ],
              }))}
            />
          );
        }}
      </Loaded>
    </Panel>
  );
}
