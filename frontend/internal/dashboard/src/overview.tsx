// The first page: how many jobs are in which state, what moves, and what needs somebody.

import type { ComponentChildren } from "preact";
import type { Job, Node, Rates, Share, Summary } from "./api";
import { filterOf, shownStates } from "./state";
import { useView } from "./http";
import { Doing, Endpoints, For, jobHref, jobName, Loaded, Page, Panel, StateBadge, Table } from "./parts";
import { Plot } from "./plot";
import { hrefOf } from "./route";
import { bytes, count, duration, rate } from "./text";

export function Overview() {
  const summary = useView<Summary>("_scheduler/summary");
  return (
    <Page title="Overview" actions={<a class="button primary" href={hrefOf(["new"])}>New replication</a>}>
      <Loaded view={summary}>
        {(s) => (
          <>
            <Counts summary={s} />
            <div class="columns">
              <Panel title="Crashing longest" aside={<a href={hrefOf(["jobs"], { sort: "since" })}>All</a>}>
                <Needy
                  jobs={s.crashing}
                  none="No job is crashing."
                  why={(job) => (
                    <>
                      <For since={job.crashing_since!} />: {job.info?.error ?? "it runs again"}
                    </>
                  )}
                />
              </Panel>
              <Panel title="Stuck" aside={<a href={hrefOf(["jobs"], { sort: "stuck" })}>All</a>}>
                <Needy
                  jobs={s.stuck}
                  none="Each running job makes progress or waits for new changes."
                  why={(job) => (
                    <>
                      no progress <For since={job.stuck_since!} />
                      {job.info?.activity && (
                        <>
                          : <Doing activity={job.info.activity} />
                        </>
                      )}
                      {job.info?.activity?.waiting?.map((wait) => `; ${wait.endpoint}: ${wait.error}`)}
                    </>
                  )}
                />
              </Panel>
              <Panel title="Refused documents" aside={<a href={hrefOf(["jobs"], { sort: "refused" })}>All</a>}>
                <Needy
                  jobs={s.refused}
                  none="No target has refused documents of a job that has not ended."
                  why={(job) => (job.info?.doc_write_failures ? `${count(job.info.doc_write_failures)} refused` : job.info?.error)}
                />
              </Panel>
            </div>
            {s.mirrors.length > 0 && <Mirrors mirrors={s.mirrors} />}
          </>
        )}
      </Loaded>
      <div class="columns">
        <Traffic />
        <Nodes />
      </div>
      <Shares />
    </Page>
  );
}

function Counts({ summary }: { summary: Summary }) {
  return (
    <ul class="counts" aria-label="Jobs by state">
      {shownStates
        .filter((state) => summary.jobs[state] || !["initializing", "error"].includes(state))
        .map((state) => (
          <li key={state}>
            <a href={hrefOf(["jobs"], filterOf(state))} class={summary.jobs[state] ? state : ""}>
              <strong>{count(summary.jobs[state] ?? 0)}</strong> {state}
            </a>
          </li>
        ))}
    </ul>
  );
}

/** Jobs that may need somebody, and why. */
function Needy({ jobs, none, why }: { jobs: Job[]; none: string; why: (job: Job) => ComponentChildren }) {
  if (jobs.length === 0) return <p class="muted">{none}</p>;
  return (
    <ul class="rows">
      {jobs.map((job) => (
        <li key={job.job_id}>
          <a href={jobHref(job)}>{jobName(job)}</a> <Endpoints source={job.source} target={job.target} />
          <small class="muted">{why(job)}</small>
        </li>
      ))}
    </ul>
  );
}

/** Mirrors, those that are furthest behind first. */
function Mirrors({ mirrors }: { mirrors: Job[] }) {
  const behind = (job: Job) => job.info?.mirror?.lag_sec ?? 0;
  return (
    <Panel title="Mirrors">
      <ul class="rows">
        {[...mirrors]
          .sort((a, b) => behind(b) - behind(a))
          .map((job) => {
            const mirror = job.info?.mirror;
            const failing = (mirror?.states.failing ?? 0) + (mirror?.states.failed ?? 0);
            return (
              <li key={job.job_id}>
                <a href={jobHref(job)}>{jobName(job)}</a> <Endpoints source={job.source} target={job.target} />
                {mirror && (
                  <small class="muted">
                    {count(mirror.states.up_to_date ?? 0)} of {count(mirror.databases)} databases up to date
                    {failing > 0 && <strong class="bad">, {count(failing)} failing</strong>}
                    {mirror.behind_since && (
                      <>
                        , behind <For since={mirror.behind_since} />
                      </>
                    )}
                  </small>
                )}
              </li>
            );
          })}
      </ul>
    </Panel>
  );
}

function Traffic() {
  const view = useView<Rates>("_scheduler/rates");
  return (
    <Panel title="The last hour">
      <Loaded view={view}>{(rates) => <Plots rates={rates} />}</Loaded>
    </Panel>
  );
}

function Plots({ rates }: { rates: Rates }) {
  const perSecond = (numbers: number[]) => numbers.map((n) => n / rates.step);
  // The last step is not over.
  const written = perSecond(rates.docs_written).slice(0, -1);
  const refused = perSecond(rates.doc_write_failures).slice(0, -1);
  const received = perSecond(rates.bytes_received).slice(0, -1);
  const sent = perSecond(rates.bytes_sent).slice(0, -1);
  const [receivedNow, sentNow] = [received.at(-1) ?? 0, sent.at(-1) ?? 0];
  const times = written.map((_, i) => rates.since + i * rates.step);
  const now = written.at(-1) ?? 0;
  return (
    <>
      <p>
        <strong>{rate(now)}</strong> documents a second, <strong>{bytes(receivedNow)}</strong> received and{" "}
        <strong>{bytes(sentNow)}</strong> sent a second<small class="muted"> in the last {duration(rates.step)}</small>
      </p>
      <Plot
        times={times}
        series={[
          { label: "written a second", values: written, color: "--running" },
          { label: "refused a second", values: refused, color: "--crashing" },
        ]}
        text={`Documents a second over the last hour, ${rate(now)} now`}
        format={rate}
      />
      <Plot
        times={times}
        series={[
          { label: "received a second", values: received, color: "--running" },
          { label: "sent a second", values: sent, color: "--pending" },
        ]}
        text={`Bytes a second over the last hour: ${bytes(receivedNow)} received and ${bytes(sentNow)} sent now`}
        format={bytes}
      />
    </>
  );
}

function Nodes() {
  const view = useView<{ nodes: Node[] }>("_scheduler/nodes");
  return (
    <Panel title="Nodes" aside={<a href={hrefOf(["nodes"])}>All</a>}>
      <Loaded view={view}>
        {({ nodes }) => (
          <ul class="rows">
            {nodes.slice(0, 8).map((node) => (
              <li key={node.instance}>
                <StateBadge state={node.live ? "live" : "gone"} /> {node.name}
                <small class="muted">
                  {" "}
                  {node.roles.join(", ")}; {count(node.running)} of {count(node.max_jobs)} jobs
                </small>
              </li>
            ))}
          </ul>
        )}
      </Loaded>
    </Panel>
  );
}

function Shares() {
  const view = useView<{ shares: Share[] }>("_scheduler/shares");
  return (
    <Panel title="Shares of the last hour" aside={<a href={hrefOf(["databases"])}>Databases</a>}>
      <Loaded view={view}>
        {({ shares }) =>
          shares.length === 0 ? (
            <p class="muted">No database has jobs.</p>
          ) : (
            <Table
              head={["Database or user", "Had", "Entitled to"]}
              rows={[...shares]
                .sort((a, b) => b.ran - a.ran)
                .slice(0, 8)
                .map((share) => ({
                  key: share.database ?? `user ${share.user}`,
                  header: 0,
                  cells: [
                    share.database ?? `transient jobs of ${share.user ?? "anybody"}`,
                    `${(share.ran * 100).toFixed(1)} %`,
                    `${(share.entitled * 100).toFixed(1)} %`,
                  ],
                }))}
            />
          )
        }
      </Loaded>
    </Panel>
  );
}
