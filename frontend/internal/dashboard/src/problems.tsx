// What needs attention, grouped by endpoint and cause, and what can be done about it.

import { useState } from "preact/hooks";
import { documentPathOf, forEach, rewrite, run } from "./actions";
import type { Job, JobName, Problem, Problems } from "./api";
import { Failure, pathOf, request } from "./http";
import { Action, Dialog, Field, For, jobHref, jobName, Panel } from "./parts";
import { hrefOf } from "./route";
import { setLogin } from "./secrets";
import { count, some } from "./text";

const heads: Record<Problem["kind"], [one: string, several: string]> = {
  crashing: ["crashes", "crash"],
  failed: ["has failed", "have failed"],
  stuck: ["makes no progress", "make no progress"],
  refused: ["has refused documents", "have refused documents"],
  late: ["hears of changes late", "hear of changes late"],
};

/** The names that are written out. */
const named = 3;

export function ProblemsPanel({ problems }: { problems: Problems }) {
  if (problems.problems.length === 0) return null;
  const left = problems.total_rows - problems.problems.length;
  return (
    <Panel title="Needs attention">
      <ul class="rows problems">
        {problems.problems.map((problem) => (
          <Row key={`${problem.kind} ${problem.endpoint} ${problem.side} ${problem.cause}`} problem={problem} />
        ))}
      </ul>
      {left > 0 && <p class="muted">{some(left, "other problem")}, of fewer jobs</p>}
    </Panel>
  );
}

function Row({ problem }: { problem: Problem }) {
  const [one, several] = heads[problem.kind];
  const list = listOf(problem);
  return (
    <li>
      <div>
        <strong class="bad">
          {some(problem.jobs, "job")} {problem.jobs === 1 ? one : several}
        </strong>
        {problem.since && (
          <span class="muted">
            {" "}
            <For since={problem.since} />
          </span>
        )}
        :{" "}
        {problem.kind === "late" && <a href={list}>parked jobs</a>}
        {problem.first.slice(0, named).map((job, i) => (
          <>
            {i > 0 && ", "}
            <a href={jobHref(job)}>{jobName(job)}</a>
          </>
        ))}
        {problem.kind !== "late" && problem.jobs > named && (
          <>
            {" and "}
            <a href={list}>{some(problem.jobs - named, "other")}</a>
          </>
        )}
        <p>
          {problem.endpoint && (
            <>
              {problem.side && `${problem.side} `}
              <strong>{problem.endpoint}</strong>:{" "}
            </>
          )}
          {problem.kind === "stuck" ? problem.cause.replaceAll("_", " ") : problem.cause}
          {problem.advice && <span class="muted"> {"→"} {problem.advice}</span>}
        </p>
      </div>
      <div class="buttons">
        <Remedy problem={problem} />
        {problem.kind === "crashing" && (
          <Action run={() => forEach(problem.first.map((job) => ({ ...job, ended: false })), run)}>Run now</Action>
        )}
        {problem.kind === "failed" && documented(problem).length > 0 && (
          <Action run={() => forEach(documented(problem).map((job) => ({ ...job, ended: true })), run)}>Run again</Action>
        )}
      </div>
    </li>
  );
}

/** The list of jobs in which those of a problem are. */
function listOf({ kind, endpoint }: Problem): string {
  const q = endpoint ?? undefined;
  switch (kind) {
    case "failed":
      return hrefOf(["jobs"], { condition: "failed", q });
    case "crashing":
      return hrefOf(["jobs"], { sort: "failing", q });
    case "late":
      return hrefOf(["jobs"], { condition: "parked", q });
  }
  return hrefOf(["jobs"], { sort: kind === "refused" ? "documents_refused" : kind, q });
}

/** The jobs of a problem that have a document, or whose mirror has one. */
function documented(problem: Problem) {
  return problem.first.filter((job) => documentPathOf(job) || job.mirror);
}

function Remedy({ problem }: { problem: Problem }) {
  const jobs = documented(problem);
  const [job] = problem.first;
  switch (problem.remedy) {
    case "certificate":
      return (
        <a class="button" href={hrefOf(["configuration"], { q: "ssl_trusted_certificates_file" })}>
          Trust a certificate
        </a>
      );
    case "documents":
      return problem.jobs === 1 && job ? (
        <a class="button" href={jobHref(job)}>
          Show the documents
        </a>
      ) : (
        <a class="button" href={listOf(problem)}>
          Show the jobs
        </a>
      );
  }
  if (jobs.length === 0) return null;
  switch (problem.remedy) {
    case "credentials":
      return problem.side ? <Password problem={problem} side={problem.side} jobs={jobs} /> : <Edit job={jobs[0]!} />;
    case "database":
      return problem.side === "target" ? <CreateTarget jobs={jobs} /> : <Edit job={jobs[0]!} />;
    case "filter":
    case "host":
      return <Edit job={jobs[0]!} />;
  }
  return null;
}

function Edit({ job }: { job: JobName }) {
  if (job.database === null || job.doc_id === null) return null;
  return (
    <a class="button" href={hrefOf(["new"], { database: job.database, document: job.doc_id })}>
      Edit {job.doc_id}
    </a>
  );
}

/** Changes the documents of jobs. Jobs of one mirror have one document. */
async function rewriteAll(jobs: JobName[], change: (doc: Record<string, unknown>) => Record<string, unknown>, done: string): Promise<void> {
  const own = jobs.filter(documentPathOf);
  const mirrors = new Set(jobs.filter((job) => !documentPathOf(job)).map((job) => job.mirror!));
  for (const id of mirrors) own.push(await request<Job>("GET", `_scheduler/jobs/${pathOf(id)}`));
  await forEach(own, async (job) => {
    const path = documentPathOf(job);
    if (!path) throw new Failure(0, "transient", "it has no document: end it, and post it to _replicate again");
    await rewrite(path, change);
    return done;
  });
}

function CreateTarget({ jobs }: { jobs: JobName[] }) {
  return (
    <Action
      run={() => rewriteAll(jobs, (doc) => ({ ...doc, create_target: true }), "the target is created with the next run")}
      question="Create the target"
      confirm={
        <>
          <code>create_target</code> is set in {jobs.length === 1 ? "the document of the job" : `the documents of ${count(jobs.length)} jobs`}, which then run again.
        </>
      }
    >
      Create the target
    </Action>
  );
}

function Password({ problem, side, jobs }: { problem: Problem; side: "source" | "target"; jobs: JobName[] }) {
  const [asking, setAsking] = useState(false);
  const [username, setUsername] = useState("");
  const [password, setPassword] = useState("");
  return (
    <>
      <button type="button" onClick={() => setAsking(true)}>
        Correct the password
      </button>
      {asking && (
        <Dialog
          title={`Log in at ${problem.endpoint}`}
          action="Save"
          disabled={!username}
          run={async () => {
            await rewriteAll(jobs, (doc) => ({ ...doc, [side]: setLogin(doc[side], { username, password }) }), "the new login is used from the next run on");
            setPassword("");
          }}
          close={() => setAsking(false)}
        >
          <p>
            {jobs.length === 1 ? jobName(jobs[0]!) : some(jobs.length, "job")} will use this login for the {side}. Headers with another one are removed.
          </p>
          <Field label="User">
            {(id) => <input id={id} autocomplete="off" required value={username} onInput={(event) => setUsername(event.currentTarget.value)} />}
          </Field>
          <Field label="Password">
            {(id) => (
              <input id={id} type="password" autocomplete="new-password" value={password} onInput={(event) => setPassword(event.currentTarget.value)} />
            )}
          </Field>
        </Dialog>
      )}
    </>
  );
}
