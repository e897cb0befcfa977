// The page of one job.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { Acknowledged, AcknowledgeJob } from "./acknowledge";
import { canPause, forEach, isPaused, plain, remove, run, setPaused, verify } from "./actions";
import type { EndSaid, Event, Failure, Failures, Job, ReplicationDocument, Run, SingleJob, Watch } from "./api";
import { Changes } from "./changes";
import { pathOf, urlOf, useView } from "./http";
import { Action, Copy, Due, Endpoints, Fact, For, groupBy, jobName, JobState, Loaded, Page, Panel, Progress, Since, Table, Waiting } from "./parts";
import { MirrorButtons, MirrorPanels } from "./mirror";
import { notify } from "./notices";
import { Plot } from "./plot";
import { goAfter, hrefOf } from "./route";
import { everyInWords, scheduleInWords } from "./schedule";
import { mask } from "./secrets";
import { clock, count, duration, endpoint, some } from "./text";
import { hasEnded, markOf, Why } from "./why";

export function JobPage({ id, admin }: { id: string; admin: boolean }) {
  const path = `_scheduler/jobs/${encodeURIComponent(id)}`;
  const view = useView<SingleJob>(path);
  const job = view.data;
  const documentPath = job?.database && job.doc_id ? pathOf(job.database, job.doc_id) : undefined;
  const doc = useView<ReplicationDocument>(documentPath);
  const definition = useView<Record<string, unknown>>(job && !documentPath ? `${path}/definition` : undefined);
  return (
    <Page title={job ? jobName(job) : id} actions={job && <Buttons job={job} admin={admin} documentPath={documentPath} doc={doc.data} definition={definition.data} />}>
      <Loaded view={view}>
        {(job) => (
          <>
            <Now job={job} when={whenInWords(documentPath ? doc.data : definition.data)} />
            {job.info?.mirror ? <MirrorPanels job={job} mirror={job.info.mirror} doc={doc.data} /> : <Ends job={job} />}
            {markOf(job.condition, "documents_refused") && <Refused path={`${path}/failures`} />}
            <Past job={job} />
            {admin && <Changes job={job.job_id} />}
            <Panel title="Definition">
              {documentPath ? (
                <Loaded view={doc}>{(doc) => <pre tabIndex={0}>{JSON.stringify(mask(plain(doc)), null, 2)}</pre>}</Loaded>
              ) : (
                <Loaded view={definition}>{(definition) => <pre tabIndex={0}>{JSON.stringify(definition, null, 2)}</pre>}</Loaded>
              )}
            </Panel>
          </>
        )}
      </Loaded>
    </Page>
  );
}

/** When a replication runs, in words, if it is periodic. */
function whenInWords(definition?: Record<string, unknown>): string | undefined {
  if (typeof definition?.every === "string") return everyInWords(definition.every) ?? `every ${definition.every}`;
  if (typeof definition?.schedule !== "string") return undefined;
  const timezone = typeof definition.timezone === "string" ? definition.timezone : undefined;
  return scheduleInWords(definition.schedule, timezone) ?? `${definition.schedule} (${timezone ?? "UTC"})`;
}

function Buttons({
  job,
  admin,
  documentPath,
  doc,
  definition,
}: {
  job: Job;
  admin: boolean;
  documentPath?: string;
  doc?: ReplicationDocument;
  definition?: Record<string, unknown>;
}) {
  const ended = hasEnded(job);
  const pausable = canPause(job);
  const pausedAlone = isPaused(job);
  const paused = job.condition.state === "paused";
  const runNow = () => forEach([{ ...job, ended }], run);
  const end = () => goAfter(async () => notify(`${jobName(job)}: ${await remove(job)}`), hrefOf(["jobs"]));
  return (
    <>
      <MirrorButtons job={job} />
      {!ended && job.condition.state !== "running" && !pausedAlone && job.condition.reason !== "mirror" && (
        <Action
          run={runNow}
          confirm={paused ? "The database of this job is paused. The job runs as soon as the database has shares again." : undefined}
        >
          Run now
        </Action>
      )}
      {!job.info?.mirror && <Action run={() => forEach([job], verify)}>Verify</Action>}
      {pausable && !pausedAlone && <Action run={() => forEach([job], (job) => setPaused(job, true))}>Pause</Action>}
      {pausedAlone && <Action run={() => forEach([job], (job) => setPaused(job, false))}>Resume</Action>}
      {ended && documentPath && <Action run={runNow}>Run again</Action>}
      {job.condition.attention && <AcknowledgeJob job={job} />}
      {documentPath && (
        <a class="button" href={hrefOf(["new"], { database: job.database!, document: job.doc_id! })}>
          Edit
        </a>
      )}
      {documentPath && doc && <CopyCurl method="PUT" path={documentPath} body={() => mask(without(plain(doc), "_rev"))} />}
      {definition && !job.mirror && <CopyCurl method="POST" path="_replicate" body={() => definition} />}
      {(documentPath || !ended) && !job.mirror && (
        <Action
          danger
          run={end}
          question={documentPath ? "Delete the replication" : "End the replication"}
          confirm={
            documentPath ? (
              <>
                The document {job.doc_id} is deleted from {job.database}, and its job ends. What was copied stays.
                {pausable && !paused && " To stop it for a while, pause it instead."}
                {admin && !pausable && !ended && !paused && (
                  <>
                    {" "}
                    To stop it for a while, <a href={hrefOf(["databases"])}>pause its database</a>: none of the jobs of {job.database} runs then.
                  </>
                )}
              </>
            ) : (
              "The job ends. What was copied stays."
            )
          }
        >
          {documentPath ? "Delete" : "End"}
        </Action>
      )}
    </>
  );
}

function CopyCurl({ method, path, body }: { method: string; path: string; body: () => unknown }) {
  const text = () => {
    return `curl -X ${method} '${urlOf(path).replaceAll("'", "%27")}' -H 'Content-Type: application/json' -d ${quoted(JSON.stringify(body(), null, 2))}\n`;
  };
  return <Copy text={text}>Copy as curl</Copy>;
}

/** A text as a word of a shell. */
const quoted = (text: string) => `'${text.replaceAll("'", "'\\''")}'`;

function without(doc: Record<string, unknown>, field: string): Record<string, unknown> {
  return Object.fromEntries(Object.entries(doc).filter(([name]) => name !== field));
}

function Now({ job, when }: { job: Job; when?: string }) {
  const { activity, condition } = job;
  return (
    <Panel title="Now">
      <p class="now">
        <JobState job={job} /> <Why job={job} errors={false} />
      </p>
      <p>
        <Endpoints source={job.source} target={job.target} />
      </p>
      {!job.info?.mirror && <Progress job={job} />}
      {condition.fault && !activity?.waiting && !activity?.refusing && <p class="trouble" title={condition.fault.text}>{condition.fault.message}</p>}
      {condition.advice && <p class="muted">{condition.advice.text}</p>}
      {condition.acknowledged && <Acknowledged job={job} ack={condition.acknowledged} />}
      {activity && <Waiting activity={activity} />}
      {activity?.refusing && (
        <p class="trouble">
          The target has refused {count(activity.refusing.count)} revisions in a row. The latest: {activity.refusing.latest.reason}
        </p>
      )}
      <dl>
        <Fact name="Node">{job.node}</Fact>
        <Fact name="User">{job.user}</Fact>
        <Fact name="Made by">{job.mirror && <a href={hrefOf(["jobs", job.mirror])}>a mirror</a>}</Fact>
        <Fact name="Started">{job.start_time && <Since time={job.start_time} />}</Fact>
        <Fact name="Runs again">{condition.watch && <Waking watch={condition.watch} />}</Fact>
        <Fact name="Runs">{when}</Fact>
        <Fact name="Next run">{condition.state !== "running" && condition.until && <Due time={condition.until} past="due" />}</Fact>
        <Fact name="Batches at work">{activity?.batches_in_flight || undefined}</Fact>
        <Fact name="Last progress">{activity?.last_progress && <Since time={activity.last_progress} />}</Fact>
        {condition.marks?.map((mark) => (
          <Fact key={mark.type} name={nameOfMark(mark.type)}>
            {mark.count !== undefined && `${count(mark.count)} `}
            {mark.since && <For since={mark.since} />}
          </Fact>
        ))}
        <Fact name="Replication id">
          <code>{job.id}</code>
        </Fact>
      </dl>
    </Panel>
  );
}

/** What marks are called. Their count is how often runs have failed in a row, or how many documents or databases there are. */
const marks: Record<string, string> = {
  failing: "Failing runs",
  stuck: "No progress",
  behind: "Behind",
  documents_refused: "Refused documents",
  databases_failing: "Failing databases",
  acknowledged: "Acknowledged",
};

const nameOfMark = (type: string) => marks[type] ?? type.replaceAll("_", " ");

/** What makes a parked job run again. */
function Waking({ watch }: { watch: Watch }) {
  const server = endpoint(watch.server);
  if (watch.by === "feed") {
    return (
      <>
        when {server}/_db_updates names {watch.database}
      </>
    );
  }
  if (watch.by !== "questions") {
    return (
      <>
        when {watch.database} of {server} changes
      </>
    );
  }
  return (
    <>
      when a question to {server} finds a change of {watch.database}
      {watch.next_question && (
        <>
          , next <Due time={watch.next_question} past="now" />
        </>
      )}
      {watch.reason && <small class="muted">{watch.reason}</small>}
    </>
  );
}

/** Both ends of a replication, side by side: what it knows of them, and who else uses them. */
function Ends({ job }: { job: SingleJob }) {
  const info = job.info ?? {};
  const sequence = (value: unknown) => (value === null || value === undefined ? undefined : <code>{String(value).slice(0, 60)}</code>);
  const said = (end?: EndSaid) =>
    end &&
    job.ends && (
      <>
        <Fact name="Documents">
          {count(end.docs)}
          {end.docs_deleted > 0 && `, and ${count(end.docs_deleted)} deleted`}
        </Fact>
        <Fact name="Update sequence">{sequence(end.update_seq)}</Fact>
        <Fact name="Asked">
          <Since time={job.ends.at} />; Verify asks again
        </Fact>
      </>
    );
  return (
    <div class="columns">
      <End title="Source" url={job.source}>
        {said(job.ends?.source)}
        <Fact name="Documents read">{info.docs_read !== undefined && count(info.docs_read)}</Fact>
        <Fact name="Revisions checked">{info.revisions_checked !== undefined && count(info.revisions_checked)}</Fact>
        <Fact name="Changes pending">{info.docs_written !== undefined && count(info.changes_pending)}</Fact>
        <Fact name="Source is at">{sequence(info.source_seq)}</Fact>
      </End>
      <End title="Target" url={job.target}>
        {said(job.ends?.target)}
        <Fact name="Documents written">{info.docs_written !== undefined && count(info.docs_written)}</Fact>
        <Fact name="Documents refused">
          {info.doc_write_failures !== undefined && <span class={info.doc_write_failures > 0 ? "bad" : undefined}>{count(info.doc_write_failures)}</span>}
        </Fact>
        <Fact name="Revisions that were missing">{info.missing_revisions_found !== undefined && count(info.missing_revisions_found)}</Fact>
        <Fact name="Has everything up to">{sequence(info.checkpointed_source_seq)}</Fact>
        <Fact name="Verified">
          <Verified job={job} />
        </Fact>
        <Fact name="Compare both">
          <Copy text={() => `settee verify ${quoted(job.source)} ${quoted(job.target)}\n`}>Copy the command</Copy>
        </Fact>
      </End>
    </div>
  );
}

/** What the latest comparison of both ends has found, and whether one is under way. */
function Verified({ job: { verified, verifying_since } }: { job: SingleJob }) {
  return (
    <>
      {verified && (
        <>
          <span class={verified.error || verified.missing_at_target > 0 ? "bad" : "good"}>
            {verified.error
              ? `not compared: ${verified.error}`
              : verified.missing_at_target > 0
                ? `the target lacks ${count(verified.missing_at_target)} of ${some(verified.revisions_checked, "revision")}`
                : `the target has all ${some(verified.revisions_checked, "revision")}`}
          </span>{" "}
          <small class="muted">
            <Since time={verified.ended} />
          </small>
        </>
      )}
      {verifying_since ? (
        <small class="muted">
          asked to compare both <Since time={verifying_since} />
        </small>
      ) : (
        !verified && <span class="muted">never</span>
      )}
    </>
  );
}

function End({ title, url, children }: { title: string; url: string; children: ComponentChildren }) {
  const database = endpoint(url);
  const server = database.split("/")[0]!;
  return (
    <Panel title={title}>
      <p>{database}</p>
      <dl>
        {children}
        <Fact name="Other jobs">
          <a href={hrefOf(["jobs"], { q: database })}>of this database</a>, <a href={hrefOf(["jobs"], { q: server })}>of this server</a>
        </Fact>
      </dl>
    </Panel>
  );
}

const outcomes: Record<string, string> = {
  completed: "copied everything",
  stopped: "stopped before the end",
  parked: "copied everything, and waited for a change",
  restarted: "ended, as the replication id had changed",
  crashed: "crashed",
  failed: "failed",
  lost: "ended with the node",
};

/** Runs that ended one after the other in the same way, the latest in front, or what else has happened to a job. */
type Step = { at: number; runs: Run[]; event?: never } | { at: number; event: Event; runs?: never };

/** The runs of a job and the events of its history, in one list, the latest in front. A run that has ended is in both: then the
 * events are left out. */
function stepsOf(runs: Run[], history: Event[]): Step[] {
  const seconds = (time: string) => Math.floor(Date.parse(time) / 1000);
  const told = new Set(runs.flatMap((run) => [`started ${seconds(run.start)}`, `ended ${seconds(run.end)}`]));
  const began = ["added", "pending"];
  const kept = history.filter(({ type, timestamp }) => began.includes(type) || !told.has(`${type === "started" ? type : "ended"} ${seconds(timestamp)}`));
  const all: Step[] = [
    ...runs.map((run) => ({ at: seconds(run.end), runs: [run] })),
    ...kept.map((event) => ({ at: seconds(event.timestamp), event })),
  ];
  const wayOf = (step?: Step) => step?.runs && `${step.runs[0]!.outcome} ${step.runs[0]!.reason ?? ""}`;
  const steps: Step[] = [];
  for (const step of all.sort((a, b) => b.at - a.at)) {
    const last = steps.at(-1);
    if (step.runs && wayOf(step) === wayOf(last)) last!.runs!.push(...step.runs);
    else steps.push(step);
  }
  return steps;
}

/** What has happened to a job: its runs over time, and below what became of each. */
function Past({ job }: { job: Job }) {
  const runs = job.runs ?? [];
  const oldest = [...runs].reverse();
  const numbers = (of: (run: Run) => number | undefined) => oldest.map((run) => of(run) ?? null);
  const now = job.condition.fault?.text;
  const why = (reason?: string) => (reason !== undefined && reason === now ? "the error above" : reason);
  return (
    <Panel title="Runs and history">
      {runs.length > 1 && runs.some((run) => run.docs_written || run.doc_write_failures) && (
        <Plot
          bars
          times={oldest.map((run) => Date.parse(run.end) / 1000)}
          series={[
            { label: "written", values: numbers((run) => run.docs_written), color: "--running" },
            // A bar of height 0 would be a line.
            { label: "refused", values: numbers((run) => run.doc_write_failures || undefined), color: "--crashing" },
          ]}
          text={`Documents written in each of the last ${runs.length} runs`}
          format={count}
          least={1}
        />
      )}
      <ol class="timeline">
        {stepsOf(runs, job.history).map((step) =>
          step.runs ? (
            <li key={`run ${step.runs.at(-1)!.start}`} class={step.runs[0]!.outcome}>
              <RunGroup runs={step.runs} reason={why(step.runs[0]!.reason)} open={runs.length <= 5} />
            </li>
          ) : (
            <li key={`${step.event.type} ${step.event.timestamp}`} class={step.event.type}>
              <strong>{step.event.type}</strong>{" "}
              <small class="muted">
                <Since time={step.event.timestamp} />, {clock(step.event.timestamp)}
              </small>
              {step.event.reason && <p>{why(step.event.reason)}</p>}
            </li>
          ),
        )}
      </ol>
    </Panel>
  );
}

function RunGroup({ runs, reason, open }: { runs: Run[]; reason?: string; open: boolean }) {
  const { outcome, end } = runs[0]!;
  return (
    <details class="group" open={open}>
      <summary>
        {some(runs.length, "run")} {outcomes[outcome] ?? outcome}{" "}
        <small class="muted">
          {runs.length > 1 && "the latest "}
          <Since time={end} />, {clock(end)}
        </small>
        {reason && <span class={["crashed", "failed", "lost"].includes(outcome) ? "bad" : "muted"}>{reason}</span>}
      </summary>
      <Table
        head={["Ended", "Took", "Outcome", "Written", "Refused", "Node"]}
        rows={runs.map((run) => ({
          key: run.start + run.end,
          cells: [
            <Since time={run.end} />,
            duration((Date.parse(run.end) - Date.parse(run.start)) / 1000),
            run.outcome,
            count(run.docs_written),
            count(run.doc_write_failures),
            run.node,
          ],
        }))}
      />
    </details>
  );
}

const shownAtOnce = 50;
const openUpTo = 10;

/** A reason without the id of the document, which tells refusals with one cause apart. */
function causeOf({ id, status, reason }: Failure): string {
  const text = id ? reason.replaceAll(id, "…") : reason;
  return status === undefined ? text : `${status}: ${text}`;
}

function Refused({ path }: { path: string }) {
  const view = useView<Failures>(path);
  return (
    <Panel title="Refused documents">
      <Loaded view={view}>
        {({ total, failures }) => {
          const groups = [...groupBy(failures, causeOf)].sort(([, a], [, b]) => b.length - a.length);
          return (
            <>
              <p>
                {count(total)} in all{failures.length < total && `, the latest ${count(failures.length)} are kept`}
              </p>
              {groups.map(([cause, same]) => (
                <RefusedGroup key={cause} cause={cause} failures={same} open={groups.length === 1 && same.length <= openUpTo} />
              ))}
            </>
          );
        }}
      </Loaded>
    </Panel>
  );
}

function RefusedGroup({ cause, failures, open }: { cause: string; failures: Failure[]; open: boolean }) {
  const [asked, setPage] = useState(0);
  const pages = Math.ceil(failures.length / shownAtOnce);
  const page = Math.max(0, Math.min(asked, pages - 1)); // there may be fewer now
  return (
    <details class="group" open={open}>
      <summary>
        {some(failures.length, "document")}: <span class="bad">{cause}</span>
      </summary>
      <ul class="rows">
        {failures.slice(page * shownAtOnce, (page + 1) * shownAtOnce).map((failure, i) => (
          <li key={i}>
            <code>{failure.id}</code>{" "}
            <small class="muted">
              {failure.rev}, <Since time={failure.timestamp} />
            </small>
          </li>
        ))}
      </ul>
      <nav class="pager" aria-label="Pages of refused documents">
        {pages > 1 && (
          <span class="muted" role="status">
            Page {page + 1} of {pages}
          </span>
        )}
        {page > 0 && (
          <button type="button" onClick={() => setPage(page - 1)}>
            Newer
          </button>
        )}
        {page + 1 < pages && (
          <button type="button" onClick={() => setPage(page + 1)}>
            Older
          </button>
        )}
      </nav>
    </details>
  );
}
