// What needs attention, grouped by what is wrong at which end, and what can be done about it.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { AcknowledgeProblem } from "./acknowledge";
import { documentPathOf, forEach, rewrite, run } from "./actions";
import type { Job, JobName, Problem, Problems } from "./api";
import { Failure, pathOf, request } from "./http";
import { Action, Dialog, Field, For, jobHref, jobName, Panel } from "./parts";
import { hrefOf } from "./route";
import { setLogin } from "./secrets";
import { count, some } from "./text";

const heads: Record<Problem["kind"], [one: string, several: string]> = {
  failing: ["fails", "fail"],
  failed: ["has failed", "have failed"],
  stuck: ["makes no progress", "make no progress"],
  documents_refused: ["has refused documents", "have refused documents"],
  source_unlistable: ["cannot follow its source", "cannot follow their sources"],
  target_unlistable: ["cannot look at its target", "cannot look at their targets"],
  target_changed: ["has lost databases", "have lost databases"],
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
          <Row key={`${problem.kind} ${problem.code} ${problem.side} ${problem.host} ${problem.mirror}`} problem={problem} />
        ))}
      </ul>
      {left > 0 && <p class="muted">{some(left, "other problem")}, of fewer jobs</p>}
    </Panel>
  );
}

function Row({ problem }: { problem: Problem }) {
  const [one, several] = heads[problem.kind] ?? [problem.kind, problem.kind];
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
          {problem.message}
          {problem.advice && <span class="muted"> {"→"} {problem.advice.text}</span>}
        </p>
      </div>
      <div class="buttons">
        <Help problem={problem} />
        {problem.kind === "failing" && (
          <Action run={() => forEach(problem.first.map((job) => ({ ...job, ended: false })), run)}>Run now</Action>
        )}
        {problem.kind === "failed" && documented(problem).length > 0 && (
          <Action run={() => forEach(documented(problem).map((job) => ({ ...job, ended: true })), run)}>Run again</Action>
        )}
        {problem.kind !== "late" && <AcknowledgeProblem problem={problem} />}
      </div>
    </li>
  );
}

/** The list of jobs in which those of a problem are. */
function listOf({ kind, host: q, mirror }: Problem): string {
  if (mirror && kind === "failing") return hrefOf(["jobs"], { mirror, sort: "failing" });
  switch (kind) {
    case "failed":
      return hrefOf(["jobs"], { condition: "failed", q });
    case "late":
      return hrefOf(["jobs"], { condition: "parked", q });
    case "failing":
    case "stuck":
    case "documents_refused":
      return hrefOf(["jobs"], { sort: kind, q });
  }
  return hrefOf(["jobs"], { q });
}

/** The jobs of a problem that have a document, or whose mirror has one. */
function documented(problem: Problem) {
  return problem.first.filter((job) => documentPathOf(job) || job.mirror);
}

/** A button of a problem. jobs are those of its first jobs that have a document, or whose mirror has one. */
type Helper = (problem: Problem, jobs: ReturnType<typeof documented>) => ComponentChildren;

const none: Helper = () => null;
const edit: Helper = (_, [job]) => job && <Edit job={job} />;
const password: Helper = (problem, jobs) => {
  if (jobs.length === 0) return null;
  return problem.side ? <Password problem={problem} side={problem.side} jobs={jobs} /> : <Edit job={jobs[0]!} />;
};
const setting = (name: string, text: string): Helper => () => (
  <a class="button" href={hrefOf(["configuration"], { q: name })}>
    {text}
  </a>
);
const documents: Helper = (problem) => {
  const [job] = problem.first;
  return problem.jobs === 1 && job ? (
    <a class="button" href={jobHref(job)}>
      Show the documents
    </a>
  ) : (
    <a class="button" href={listOf(problem)}>
      Show the jobs
    </a>
  );
};

/** What the page offers for each advice of the node. A test compares them. */
const helps: Record<string, Helper> = {
  add_key: none,
  add_node: none,
  check_target: edit,
  check_tls: edit,
  client_certificate: setting("cert_file", "Set a certificate"),
  correct_host: edit,
  correct_url: edit,
  create_database: edit,
  create_target: (_, jobs) => jobs.length > 0 && <CreateTarget jobs={jobs} />,
  credentials: password,
  delete_one: none,
  denied_networks: setting("denied_networks", "Show the setting"),
  edit: edit,
  feed: none,
  filter: edit,
  filter_slow: edit,
  host: edit,
  list_rights: password,
  max_document_size: setting("max_document_size", "Raise the limit"),
  mirror_security: edit,
  more_slots: setting("max_jobs", "Raise the limit"),
  name_server: none,
  no_checkpoints: edit,
  proxy: edit,
  proxy_credentials: edit,
  refused_documents: documents,
  renew_certificate: none,
  rights: password,
  server: none,
  server_hangs: none,
  server_log: none,
  slower: none,
  token: edit,
  token_server: edit,
  trust_authority: setting("ssl_trusted_certificates_file", "Trust a certificate"),
  uncordon: () => (
    <a class="button" href={hrefOf(["nodes"])}>
      Show the nodes
    </a>
  ),
  watch_login: none,
};

function Help({ problem }: { problem: Problem }) {
  const help = helps[problem.advice?.code ?? ""];
  return <>{help?.(problem, documented(problem))}</>;
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

/** A button that asks for a login. Only jobs that the problem has when the button is pressed get it. */
function Password(now: { problem: Problem; side: "source" | "target"; jobs: JobName[] }) {
  const [asked, setAsked] = useState<typeof now>();
  return (
    <>
      <button type="button" onClick={() => setAsked(now)}>
        Correct the password
      </button>
      {asked && <LoginDialog {...asked} close={() => setAsked(undefined)} />}
    </>
  );
}

function LoginDialog({ problem, side, jobs, close }: { problem: Problem; side: "source" | "target"; jobs: JobName[]; close: () => void }) {
  const [username, setUsername] = useState("");
  const [password, setPassword] = useState("");
  return (
    <Dialog
      title={`Log in at ${problem.host}`}
      action="Save"
      disabled={!username}
      run={() => rewriteAll(jobs, (doc) => ({ ...doc, [side]: setLogin(doc[side], { username, password }) }), "the new login is used from the next run on")}
      close={close}
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
  );
}
