// The first page: how many jobs are in which state, what moves, and what needs somebody.

import type { Job, Node, Problems, Rates, Share, Summary } from "./api";
import { useView } from "./http";
import { NodeState } from "./nodes";
import { Copy, Endpoints, For, jobHref, jobName, Loaded, Page, Panel, Table, Trouble } from "./parts";
import { Plot } from "./plot";
import { ProblemsPanel } from "./problems";
import { hrefOf } from "./route";
import { statesByNeed } from "./state";
import { bytes, count, duration, rate, some } from "./text";
import { markOf, Why } from "./why";

export function Overview() {
  const summary = useView<Summary>("_scheduler/summary");
  const problems = useView<Problems>("_scheduler/problems");
  const nodes = useView<{ nodes: Node[] }>("_scheduler/nodes");
  const rates = useView<Rates>("_scheduler/rates");
  const none = summary.data !== undefined && Object.values(summary.data.jobs).every((n) => !n);
  // All at once, so that nothing moves when one of them comes later than the others.
  const ready = [problems, nodes, rates].every((view) => view.data !== undefined || view.failure);
  return (
    <Page title="Overview" actions={<a class="button primary" href={hrefOf(["new"])}>New replication</a>}>
      <Loaded view={ready ? summary : { failure: summary.failure }}>
        {(s) => (
          <>
            {none ? (
              <Beginnings />
            ) : (
              <>
                <Verdict summary={s} problems={problems.data} nodes={nodes.data?.nodes} />
                <Counts summary={s} problems={problems.data} />
                <Trouble failure={problems.failure} stale={problems.data !== undefined} />
                {problems.data && <ProblemsPanel problems={problems.data} />}
                {s.mirrors.length > 0 && <Mirrors mirrors={s.mirrors} />}
                <Panel title="The last hour">
                  <Loaded view={rates}>{(rates) => <Plots rates={rates} nodes={nodes.data?.nodes ?? []} />}</Loaded>
                </Panel>
              </>
            )}
            <div class="columns">
              <Trouble failure={nodes.failure} stale={nodes.data !== undefined} />
              {nodes.data && nodes.data.nodes.length > 1 && <Nodes nodes={nodes.data.nodes} />}
              <Shares />
            </div>
          </>
        )}
      </Loaded>
    </Page>
  );
}

/** What a node without jobs can begin with. */
function Beginnings() {
  const command = `settee import-couchdb http://couchdb.example:5984 --to ${new URL("..", document.baseURI).href.replace(/\/$/, "")}`;
  return (
    <>
      <p class="verdict">There are no replications yet. This is how to begin:</p>
      <div class="columns">
        <Panel title="A first replication">
          <p>Name a source and a target, and when to replicate. The node checks the document while you write it, and can test the connection.</p>
          <a class="button primary" href={hrefOf(["new"])}>
            New replication
          </a>
        </Panel>
        <Panel title="Move from CouchDB">
          <p>This command lists what it would move, and changes nothing. With a database and <code>--move</code> it moves its replications, and with <code>--back</code> it moves them back.</p>
          <pre tabIndex={0}>{command}</pre>
          <div class="buttons">
            <Copy text={() => command}>Copy the command</Copy>
          </div>
        </Panel>
      </div>
    </>
  );
}

/** What needs attention, how full the slots are, and how long jobs wait. */
function Verdict({ summary, problems, nodes }: { summary: Summary; problems?: Problems; nodes?: Node[] }) {
  return (
    <p class="verdict">
      {problems && <Attention jobs={summary.jobs} problems={problems} />} {nodes && <Slots summary={summary} nodes={nodes} />}
    </p>
  );
}

/** Jobs that have completed may have refused documents, and of those that fail nobody may be needed. */
function Attention({ jobs, problems }: { jobs: Summary["jobs"]; problems: Problems }) {
  const { attention, more } = problems;
  const all = Object.values(jobs).reduce((sum, n) => sum + n, 0);
  const total = all - (jobs.completed ?? 0);
  const failing = (jobs.crashing ?? 0) + (jobs.failed ?? 0);
  if (attention > 0) {
    return (
      <strong class="bad">
        {count(attention)}
        {more && " or more"} of {some(all, "job")} {attention === 1 && !more ? "needs" : "need"} attention.
      </strong>
    );
  }
  if (total === 0) return <>All jobs have ended.</>;
  if (failing > 0) {
    return (
      <strong>
        No job needs attention: {some(failing, "job")} that {failing === 1 ? "fails is" : "fail are"} acknowledged, or failed elsewhere.
      </strong>
    );
  }
  return <strong class="good">{total === 1 ? "The one job is well." : `All ${count(total)} jobs are well.`}</strong>;
}

/** How full the slots are. Mirrors take none. */
function Slots({ summary, nodes }: { summary: Summary; nodes: Node[] }) {
  const { used, total } = summary.slots;
  const waiting = summary.jobs.pending ?? 0;
  const wait = summary.oldest_due && (
    <>
      {some(waiting, "job")} {waiting === 1 ? "waits" : "wait"}, the oldest <For since={summary.oldest_due} />
    </>
  );
  const replicating = nodes.filter((node) => node.live && node.roles.includes("replication"));
  if (replicating.length === 0) return <strong class="bad">No node that replicates is live.</strong>;
  if (summary.waiting?.reason === "cordoned" || replicating.every((node) => node.cordon)) {
    return (
      <strong class="bad">
        <a href={hrefOf(["nodes"])}>All nodes that replicate are cordoned</a>
        {wait && <>: {wait}</>}.
      </strong>
    );
  }
  const mirrors = summary.mirrors.filter((job) => job.condition.state === "running").length;
  const without = mirrors > 0 && `, and ${some(mirrors, "mirror")} ${mirrors === 1 ? "needs" : "need"} none`;
  if (used < total) {
    return (
      <>
        {count(used)} of {some(total, "slot")} {used === 1 ? "is" : "are"} used{without}.
      </>
    );
  }
  return (
    <>
      {total === 1 ? "The one slot is" : `All ${some(total, "slot")} are`} used
      {without}
      {wait && <>; {wait}</>}.
    </>
  );
}

/** How many jobs need attention, and how many are in each state. The first are in several states, so they are also among the others. */
function Counts({ summary, problems }: { summary: Summary; problems?: Problems }) {
  return (
    <ul class="counts" aria-label="Jobs by state">
      {problems && (
        <li>
          <div class={problems.attention > 0 ? "attention" : ""}>
            <strong>
              {count(problems.attention)}
              {problems.more && "+"}
            </strong>{" "}
            need attention
          </div>
        </li>
      )}
      {statesByNeed.map((state) => (
        <li key={state}>
          <a href={hrefOf(["jobs"], { condition: state })} class={summary.jobs[state] ? state : ""}>
            <strong>{count(summary.jobs[state] ?? 0)}</strong> {state}
          </a>
        </li>
      ))}
    </ul>
  );
}

/** Mirrors, those that need somebody first, then those that are furthest behind. */
function Mirrors({ mirrors }: { mirrors: Job[] }) {
  const need = (job: Job) => (job.condition.attention ? "" : "well ") + (job.info?.mirror?.behind_since ?? "none"); // after all times
  return (
    <Panel title="Mirrors">
      <ul class="rows">
        {[...mirrors]
          .sort((a, b) => need(a).localeCompare(need(b)))
          .map((job) => {
            const mirror = job.info?.mirror;
            const failing = markOf(job.condition, "databases_failing")?.count ?? 0;
            return (
              <li key={job.job_id}>
                <a href={jobHref(job)}>{jobName(job)}</a> <Endpoints source={job.source} target={job.target} />
                <small class="muted">
                  <Why job={job} />
                </small>
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

function Plots({ rates, nodes }: { rates: Rates; nodes: Node[] }) {
  // Before the first node started nothing was counted, unless nodes that are gone since have done something.
  const started = Math.min(...nodes.map((node) => Date.parse(node.started) / 1000));
  const did = Object.values(rates).flatMap((numbers) => (Array.isArray(numbers) ? [numbers.findIndex((n) => n > 0)] : [])).filter((i) => i >= 0);
  const first = Math.min(Math.floor((started - rates.since) / rates.step), ...did);
  // The last step is not over.
  const perSecond = (numbers: number[]) => numbers.slice(0, -1).map((n, i) => (i < first ? null : n / rates.step));
  const [written, refused] = [perSecond(rates.docs_written), perSecond(rates.doc_write_failures)];
  const [received, sent] = [perSecond(rates.bytes_received), perSecond(rates.bytes_sent)];
  const times = written.map((_, i) => rates.since + i * rates.step);
  const now = (numbers: (number | null)[]) => numbers.at(-1) ?? 0;
  return (
    <div class="columns">
      <div>
        <h3>Documents a second</h3>
        <Plot
          times={times}
          series={[
            { label: "written", values: written, color: "--running" },
            { label: "refused", values: refused, color: "--crashing" },
          ]}
          text={`Documents a second over the last hour: ${rate(now(written))} written and ${rate(now(refused))} refused in the last ${duration(rates.step)}`}
          format={rate}
          least={1}
          fractions
        />
      </div>
      <div>
        <h3>Bytes a second</h3>
        <Plot
          times={times}
          series={[
            { label: "received", values: received, color: "--running" },
            { label: "sent", values: sent, color: "--pending" },
          ]}
          text={`Bytes a second over the last hour: ${bytes(now(received))} received and ${bytes(now(sent))} sent in the last ${duration(rates.step)}`}
          format={bytes}
          least={1000}
        />
      </div>
    </div>
  );
}

function Nodes({ nodes }: { nodes: Node[] }) {
  return (
    <Panel title="Nodes" aside={<a href={hrefOf(["nodes"])}>All</a>}>
      <ul class="rows">
        {nodes.slice(0, 8).map((node) => (
          <li key={node.instance}>
            <NodeState node={node} /> {node.name}
            <small class="muted">
              {" "}
              {node.roles.join(", ")}; {count(node.running)} of {some(node.max_jobs, "slot")} used
            </small>
          </li>
        ))}
      </ul>
    </Panel>
  );
}

/** How the time was divided, if there was anything to divide. */
function Shares() {
  const view = useView<{ shares: Share[] }>("_scheduler/shares");
  const shares = view.data?.shares ?? [];
  if (shares.length < 2) return <Trouble failure={view.failure} />;
  const percent = (part: number) => `${(part * 100).toFixed(1)} %`;
  return (
    <Panel title="Running time of the last hour" aside={<a href={hrefOf(["databases"])}>Replicator databases</a>}>
      <Table
        head={["Database or user", "Used", "Fair share"]}
        rows={[...shares]
          .sort((a, b) => b.ran - a.ran)
          .slice(0, 8)
          .map((share) => ({
            key: share.database ?? `user ${share.user}`,
            header: 0,
            cells: [share.database ?? `_replicate of ${share.user ?? "the anonymous user"}`, percent(share.ran), percent(share.entitled)],
          }))}
      />
    </Panel>
  );
}
