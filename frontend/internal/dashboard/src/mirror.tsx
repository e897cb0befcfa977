// What the page of a job says of a mirror: how many of its databases are up to date, how far it is behind, and which fail.

import { useEffect, useState } from "preact/hooks";
import type { Job, Jobs, MirrorInfo } from "./api";
import { useView, withQuery } from "./http";
import { Endpoints, Fact, For, jobHref, Loaded, Panel, Since, StateBadge, Table } from "./parts";
import { Plot } from "./plot";
import { hrefOf } from "./route";
import { count, duration, some } from "./text";
import { Why } from "./why";

/** The states of databases, the ones that somebody has to look at first. */
const states: [state: string, text: string][] = [
  ["failing", "failing"],
  ["failed", "failed"],
  ["elsewhere", "replicated by another job"],
  ["waiting", "waiting for their first run"],
  ["starting", "in their first run"],
  ["copying", "copying changes"],
  ["up_to_date", "up to date"],
  ["gone", "deleted at the source, to be deleted at the target"],
];

export function MirrorPanels({ job, mirror }: { job: Job; mirror: MirrorInfo }) {
  const list = hrefOf(["jobs"], { mirror: job.job_id });
  return (
    <>
      <Panel title="Databases" aside={<a href={list}>All</a>}>
        <Bar mirror={mirror} />
        {mirror.error && (
          <p class="trouble">
            {mirror.error} {mirror.error_since && <For since={mirror.error_since} />}
          </p>
        )}
        <dl>
          {states.map(([state, text]) => (
            <Fact key={state} name={text[0]!.toUpperCase() + text.slice(1)}>
              {mirror.states[state] ? count(mirror.states[state]) : undefined}
            </Fact>
          ))}
          <Fact name="Documents written">{count(mirror.docs_written)}</Fact>
          <Fact name="Documents refused">{mirror.doc_write_failures ? count(mirror.doc_write_failures) : undefined}</Fact>
          <Fact name="The list was last read">{mirror.last_look && <Since time={mirror.last_look} />}</Fact>
          <Fact name="News of databases">{mirror.by && (mirror.by === "feed" ? "by the source's _db_updates" : "by its list, once a minute")}</Fact>
        </dl>
      </Panel>
      <Failing job={job} mirror={mirror} />
      <Lag mirror={mirror} />
      <Children job={job} list={list} />
    </>
  );
}

function Bar({ mirror }: { mirror: MirrorInfo }) {
  const current = mirror.states.up_to_date ?? 0;
  if (!mirror.last_look && mirror.databases === 0) return <p class="muted">The list of the source's databases has not been read yet.</p>;
  return (
    <div class="progress">
      {mirror.databases > 0 && <progress max={mirror.databases} value={current} aria-label="databases that are up to date" />}
      <small>
        {count(current)} of {some(mirror.databases, "database")} up to date
      </small>
    </div>
  );
}

function Failing({ job, mirror }: { job: Job; mirror: MirrorInfo }) {
  if (mirror.failures.length === 0) return null;
  return (
    <Panel title="Failing longest" aside={<a href={hrefOf(["jobs"], { mirror: job.job_id, sort: "failing" })}>All</a>}>
      <ul class="rows">
        {mirror.failures.map((failure) => (
          <li key={failure.database}>
            <a href={jobHref(failure)}>{failure.database}</a> <For since={failure.since} />
            <p class="bad">{failure.reason}</p>
          </li>
        ))}
      </ul>
    </Panel>
  );
}

/** How many points of the curve are kept, and how many seconds are between them at least. */
const points = 300;
const step = 2;

/** The age of the oldest change that may be missing at the target, as it was while this page was open. */
function Lag({ mirror }: { mirror: MirrorInfo }) {
  const [seen, setSeen] = useState<{ times: number[]; lags: number[] }>({ times: [], lags: [] });
  const since = mirror.behind_since && Date.parse(mirror.behind_since) / 1000;
  useEffect(() => {
    const look = () => {
      const now = Date.now() / 1000;
      setSeen(({ times, lags }) => ({
        times: [...times.slice(-points + 1), now],
        lags: [...lags.slice(-points + 1), since ? Math.max(0, now - since) : 0],
      }));
    };
    look();
    const timer = setInterval(look, step * 1000);
    return () => clearInterval(timer);
  }, [since]);
  const latest = seen.lags.at(-1);
  const lag = latest ? `${duration(latest)} behind` : "not behind";
  return (
    <Panel title="Lag">
      <p>
        {mirror.behind_since ? (
          <>
            A change of <strong>{mirror.behind_database}</strong> may be missing at the target <For since={mirror.behind_since} />.
          </>
        ) : (
          "All changes that settee has heard of are at the target."
        )}
      </p>
      <Plot times={seen.times} series={[{ label: "behind", values: seen.lags, color: "--running" }]} text={`The mirror is ${lag}`} format={duration} least={10} />
      <small class="muted">Since this page was opened. The metric settee_mirror_lag_seconds has it for longer.</small>
    </Panel>
  );
}

const shown = 10;

function Children({ job, list }: { job: Job; list: string }) {
  const view = useView<Jobs>(withQuery("_scheduler/jobs", { mirror: job.job_id, limit: shown }));
  return (
    <Panel title="Its replications" aside={<a href={list}>All</a>}>
      <Loaded view={view}>
        {({ jobs }) =>
          jobs.length === 0 ? (
            <p class="muted">There are none yet.</p>
          ) : (
            <Table
              head={["State", "Replication"]}
              rows={jobs.map((child) => ({
                key: child.job_id,
                cells: [
                  <StateBadge state={child.condition.state} />,
                  <>
                    <a href={jobHref(child)}>
                      <Endpoints source={child.source} target={child.target} />
                    </a>
                    <small>
                      <Why job={child} />
                    </small>
                  </>,
                ],
              }))}
            />
          )
        }
      </Loaded>
    </Panel>
  );
}
