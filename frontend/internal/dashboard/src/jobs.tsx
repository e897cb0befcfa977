// The list of jobs. Its filters, its order and its place are in its address.

import { useEffect, useRef, useState } from "preact/hooks";
import type { Job, Jobs } from "./api";
import { Bulk } from "./bulk";
import { type Failure, request, useView, type View, visible, withQuery } from "./http";
import { endpointsOf, Field, For, jobHref, jobName, Loaded, Page, Progress, type Row, StateBadge, Table } from "./parts";
import { go, hrefOf, type Route } from "./route";
import { shownStates } from "./state";
import { count, some } from "./text";
import { Why } from "./why";

const pageSize = 50;

/** The jobs, for users who are no administrators those that they have posted. */
export function JobsPage({ route, admin }: { route: Route; admin: boolean }) {
  // An empty user is the anonymous one, and an empty database that of transient jobs.
  const query = Object.fromEntries(["condition", "database", "user", "mirror", "q", "sort", "start"].map((name) => [name, route.query.get(name) ?? undefined]));
  const href = (change: Record<string, string | undefined>) => hrefOf(["jobs"], { ...query, start: undefined, ...change });
  const { start, ...filters } = query;
  const { searching, ...view } = useJobs(filters, start);
  const unknown = query.database && (view.failure?.status === 404 || view.failure?.status === 401);
  return (
    <Page title="Jobs" part={start} actions={<a class="button primary" href={hrefOf(["new"])}>New replication</a>}>
      <form class="filters" role="search" onSubmit={(event) => event.preventDefault()}>
        <Field label="State">
          {(id) => (
            <select
              id={id}
              value={query.condition ?? ""}
              onChange={(event) => go(href({ condition: event.currentTarget.value || undefined, sort: undefined }))}
            >
              <option value="">not ended</option>
              <option value="completed,failed">ended</option>
              {shownStates.map((state) => (
                <option key={state}>{state}</option>
              ))}
            </select>
          )}
        </Field>
        <Typed label="Database" value={query.database ?? ""} set={(database) => go(href({ database: database || undefined, user: undefined, mirror: undefined }), true)} />
        <Typed label="Source, target or id" value={query.q ?? ""} set={(q) => go(href({ q: q || undefined }), true)} />
        {admin && (
          <Field label="Order">
            {(id) => (
              <select id={id} value={query.sort ?? ""} onChange={(event) => go(href({ sort: event.currentTarget.value || undefined, condition: undefined }))}>
                <option value="">database and id</option>
                <option value="failing">crashing longest</option>
                {query.mirror === undefined && <option value="stuck">stuck longest</option>}
                {query.mirror === undefined && <option value="behind">behind longest</option>}
                {query.mirror === undefined && <option value="documents_refused">documents refused last</option>}
              </select>
            )}
          </Field>
        )}
      </form>
      {query.user !== undefined && (
        <p>
          Jobs that {query.user || "the anonymous user"} has posted to _replicate. <a href={href({ user: undefined })}>Show all jobs</a>
        </p>
      )}
      {query.mirror !== undefined && (
        <p>
          Replications of <a href={hrefOf(["jobs", query.mirror])}>a mirror</a>. <a href={href({ mirror: undefined, sort: undefined })}>Show all jobs</a>
        </p>
      )}
      <Announced of={JSON.stringify(query)} text={searching ? undefined : view.data && totalOf(view.data, query.q)} />
      {unknown ? (
        <p class="muted">
          There is no replicator database {query.database}
          {!admin && " that you administer"}.
        </p>
      ) : (
        <Loaded view={view}>
          {(page) => (
            <>
              <p class="muted total">
                {totalOf(page, query.q)}
                {searching && ", searching"}
              </p>
              {page.jobs.length > 0 && <List key={JSON.stringify(query)} jobs={page.jobs} />}
              {page.jobs.length === 0 && (
                <p class="muted">
                  {page.next_start_key || searching ? "None so far." : Object.values(query).some((value) => value !== undefined) ? (
                    <>
                      No job matches these filters. <a href={hrefOf(["jobs"])}>Show all jobs</a>
                    </>
                  ) : (
                    <>
                      No job is running or waiting. <a href={hrefOf(["jobs"], { condition: "completed,failed" })}>Show the jobs that have ended</a>, or{" "}
                      <a href={hrefOf(["new"])}>start a replication</a>.
                    </>
                  )}
                </p>
              )}
              <nav class="pager" aria-label="Pages">
                {start && <a href={href({})}>First page</a>}
                {page.next_start_key && !searching && <a href={href({ start: page.next_start_key })}>{query.q ? "Search further" : "Next page"}</a>}
              </nav>
            </>
          )}
        </Loaded>
      )}
    </Page>
  );
}

/** What was read of a list after its first answer. */
interface Rest {
  path: string;
  jobs: Job[];
  scanned: number;
  /** Where the list goes on, undefined at its end. */
  next?: string;
  searching: boolean;
  failure?: Failure;
}

/** A page of the list. The node looks at 2,000 jobs for an answer, in which there may be fewer than a page has: then the
 * answers after it are read, too, until there are enough. The first answer is kept up to date; the others are read once. */
function useJobs(filters: Record<string, string | undefined>, start?: string): View<Jobs> & { searching: boolean } {
  const pathFrom = (start_key?: string, limit = pageSize) => withQuery("_scheduler/jobs", { ...filters, start_key, limit });
  const path = pathFrom(start);
  const { data: first, failure } = useView<Jobs>(path);
  const [rest, setRest] = useState<Rest>();
  const answered = first !== undefined;
  useEffect(() => {
    if (!first) return;
    const ended = new AbortController();
    void readRest({ path, jobs: [], scanned: 0, next: first.next_start_key, searching: true }, first.jobs.length, pathFrom, setRest, ended.signal);
    return () => ended.abort();
  }, [path, answered]);
  if (!first || !first.next_start_key) return { data: first, failure, searching: false };
  if (rest?.path !== path) return { data: first, failure, searching: first.jobs.length < pageSize };
  if (!rest.searching && rest.scanned === 0) return { data: first, failure: failure ?? rest.failure, searching: false };
  const known = new Set(first.jobs.map((job) => job.job_id));
  const data = {
    ...first,
    jobs: [...first.jobs, ...rest.jobs.filter((job) => !known.has(job.job_id))],
    scanned: (first.scanned ?? 0) + rest.scanned,
    next_start_key: rest.next,
  };
  return { data, failure: failure ?? rest.failure, searching: rest.searching };
}

/** Reads a list on until a page has enough jobs, and calls take with what there is after each answer. */
async function readRest(
  rest: Rest,
  found: number,
  pathFrom: (start: string, limit: number) => string,
  take: (rest: Rest) => void,
  signal: AbortSignal,
): Promise<void> {
  while (rest.next !== undefined && found + rest.jobs.length < pageSize) {
    take(rest);
    await visible(signal);
    try {
      const page = await request<Jobs>("GET", pathFrom(rest.next, pageSize - found - rest.jobs.length));
      rest = { ...rest, jobs: [...rest.jobs, ...page.jobs], scanned: rest.scanned + (page.scanned ?? 0), next: page.next_start_key };
    } catch (error) {
      rest = { ...rest, failure: error as Failure };
    }
    if (signal.aborted) return;
    if (rest.failure) break;
  }
  take({ ...rest, searching: false });
}

/** How many jobs a list has, if that is known, or how many of them were found. */
function totalOf(page: Jobs, search?: string): string {
  if (search) return `${count(page.jobs.length)} found in ${some(page.scanned, "job")}${page.next_start_key ? ", there are more to search" : ""}`;
  return page.total_rows === null ? "" : some(page.total_rows, "job");
}

/** Tells those who cannot see it how many jobs there are when they have chosen others, and not at each update. */
function Announced({ of, text }: { of: string; text?: string }) {
  const [said, setSaid] = useState({ of, text: "" });
  useEffect(() => {
    if (text !== undefined && said.of !== of) setSaid({ of, text });
  }, [of, text]);
  return (
    <p class="unseen" role="status">
      {said.text}
    </p>
  );
}

/** A table of jobs, of which some can be selected. */
function List({ jobs }: { jobs: Job[] }) {
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const selectable = jobs.filter((job) => !job.mirror); // those of a mirror follow its document
  const selected = selectable.filter((job) => chosen.has(job.job_id));
  const nodes = new Set(jobs.map((job) => job.node).filter(Boolean));
  const set = (ids: string[], on: boolean) => {
    const next = new Set(chosen);
    for (const id of ids) on ? next.add(id) : next.delete(id);
    setChosen(next);
  };
  const all = selected.length > 0 && selected.length === selectable.length;
  const head = [
    <input
      type="checkbox"
      aria-label="Select all jobs of this page"
      checked={all}
      indeterminate={selected.length > 0 && !all}
      disabled={selectable.length === 0}
      onChange={(event) => set(selectable.map((job) => job.job_id), event.currentTarget.checked)}
    />,
    "State",
    "Replication",
    "Source and target",
    "Progress",
    "Why",
    ...(nodes.size > 1 ? ["Node"] : []),
  ];
  return (
    <>
      <Bulk jobs={selected} all={selectable.length} select={(on) => set(selectable.map((job) => job.job_id), on)} />
      <Table jobs head={head} rows={jobs.map((job) => rowOf(job, nodes.size > 1, job.mirror ? undefined : [chosen.has(job.job_id), (on) => set([job.job_id], on)]))} />
    </>
  );
}

function rowOf(job: Job, withNode: boolean, choice?: [chosen: boolean, set: (on: boolean) => void]): Row {
  const name = jobName(job);
  const mirror = job.info?.mirror;
  return {
    key: job.job_id,
    cells: [
      choice && <input type="checkbox" aria-label={`Select ${name}`} checked={choice[0]} onChange={(event) => choice[1](event.currentTarget.checked)} />,
      <StateBadge state={job.condition.state} />,
      <a href={jobHref(job)} title={name}>
        {name}
      </a>,
      <small class="muted" title={`${job.source} to ${job.target}`}>
        {endpointsOf(job)}
      </small>,
      mirror ? (
        <small>
          {count(mirror.states.up_to_date ?? 0)} of {some(mirror.databases, "database")} up to date
          {mirror.behind_since && (
            <>
              , behind <For since={mirror.behind_since} />
            </>
          )}
        </small>
      ) : (
        <Progress job={job} brief />
      ),
      <Why job={job} />,
      ...(withNode ? [job.node] : []),
    ],
  };
}

/** A field of text that acts when its user stops typing. */
function Typed({ label, value, set }: { label: string; value: string; set: (value: string) => void }) {
  const [text, setText] = useState(value);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const latest = useRef(set); // the other filters may change before the timer ends
  latest.current = set;
  useEffect(() => setText(value), [value]);
  useEffect(() => () => clearTimeout(timer.current), []);
  return (
    <Field label={label}>
      {(id) => (
        <input
          id={id}
          type="search"
          value={text}
          onInput={(event) => {
            const next = event.currentTarget.value;
            setText(next);
            clearTimeout(timer.current);
            timer.current = setTimeout(() => latest.current(next), 400);
          }}
        />
      )}
    </Field>
  );
}
