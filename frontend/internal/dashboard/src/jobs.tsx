// The list of jobs. Its filters, its order and its place are in its address.

import { useEffect, useRef, useState } from "preact/hooks";
import type { Job, Jobs, Summary } from "./api";
import { Bulk } from "./bulk";
import { type Failure, request, useView, type View, visible, withQuery } from "./http";
import { Field, For, jobHref, jobName, JobState, Loaded, Page, Progress, type Row, type SortHead, type Tab, Table, Tabs, targetOf } from "./parts";
import { go, hrefOf, type Route } from "./route";
import { type ShownState, statesByNeed } from "./state";
import { count, endpoint, some } from "./text";
import { Why } from "./why";

const pageSize = 50;

/** What the address of the page says. */
type Query = Partial<Record<"condition" | "database" | "user" | "mirror" | "mirrored" | "q" | "sort" | "start" | "at", string>>;

/** Lists that are no state: their order in the address, and their names. */
const marked: Record<string, string> = { stuck: "stuck", documents_refused: "documents refused" };

/** The orders that the node has. Without one a list is in the order of the states, and with a text or of a mirror in the node's. */
function filtersOf({ start: _, at: __, ...query }: Query): Record<string, string | undefined> {
  if (query.mirror !== undefined) return query;
  const byMark = query.sort !== undefined && query.sort !== "name";
  return {
    ...query,
    condition: query.condition ?? (byMark ? undefined : statesByNeed.join()),
    sort: byMark ? query.sort : query.sort === "name" || query.q ? undefined : "state",
    mirrored: query.mirrored ?? (query.q ? undefined : "false"),
  };
}

/** The jobs, for users who are no administrators those that they have posted. */
export function JobsPage({ route, admin }: { route: Route; admin: boolean }) {
  // An empty user is the anonymous one, and an empty database that of transient jobs.
  const names = ["condition", "database", "user", "mirror", "mirrored", "q", "sort", "start", "at"];
  const query: Query = Object.fromEntries(names.map((name) => [name, route.query.get(name) ?? undefined]));
  const href = (change: Query) => hrefOf(["jobs"], { ...query, start: undefined, at: undefined, ...change });
  const at = Number(query.at) || 0;
  const { searching, ...view } = useJobs(filtersOf(query), query.start, at);
  const summary = useView<Summary>(admin ? "_scheduler/summary" : undefined).data;
  const unknown = query.database && (view.failure?.status === 404 || view.failure?.status === 401);
  const later = query.start !== undefined || at > 0;
  const narrowed = Object.entries(query).some(([name, value]) => value !== undefined && name !== "start" && name !== "at");
  const whose = admin || query.database ? "" : " of yours";
  return (
    <Page title="Jobs" part={`${query.start} ${at}`} actions={<a class="button primary" href={hrefOf(["new"])}>New replication</a>}>
      <form class="filters" role="search" onSubmit={(event) => event.preventDefault()}>
        <Typed label="Database" value={query.database ?? ""} set={(database) => go(href({ database: database || undefined, user: undefined, mirror: undefined }), true)} />
        <Typed label="Source, target or id" value={query.q ?? ""} set={(q) => go(href({ q: q || undefined }), true)} />
      </form>
      <StateTabs query={query} href={href} admin={admin} summary={summary} />
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
      <Announced of={JSON.stringify(query)} text={searching ? undefined : view.data && totalOf(view.data, at, query.q) + whose} />
      {unknown ? (
        <p class="muted">
          There is no replicator database {query.database}
          {!admin && " that you administer"}.
        </p>
      ) : (
        <div class="list">
          <Loaded view={view}>
            {(page) => (
              <>
                <p class="muted total">
                  {totalOf(page, at, query.q)}
                  {whose}
                  {searching && ", searching"}
                  <Mirrored query={query} href={href} summary={summary} />
                </p>
                <List key={JSON.stringify(query)} jobs={page.jobs} heads={sortHeads(query, href, admin)} />
                {page.jobs.length === 0 && (
                  <p class="muted">
                    {page.next_start_key || searching ? "None so far." : later ? "The list ends before this page." : narrowed ? (
                      <>
                        No job matches these filters. <a href={hrefOf(["jobs"])}>Show all jobs</a>
                      </>
                    ) : (
                      <>
                        There are no replications{whose} yet. <a href={hrefOf(["new"])}>Start one</a>.
                      </>
                    )}
                  </p>
                )}
                <Pager page={page} at={at} searching={searching} query={query} href={href} />
              </>
            )}
          </Loaded>
        </div>
      )}
    </Page>
  );
}

/** The states, those first that need somebody, each with the number of its jobs. The numbers are of all jobs, so a list of some has none. */
function StateTabs({ query, href, admin, summary }: { query: Query; href: (change: Query) => string; admin: boolean; summary?: Summary }) {
  if (query.mirror !== undefined) {
    const tabs = [{ name: "all", href: href({ sort: undefined }) }, { name: "failing", href: href({ sort: "failing" }) }];
    return <Tabs label="Lists" tabs={tabs} chosen={query.sort ?? "all"} />;
  }
  const whole = !query.database && query.user === undefined && !query.q;
  const numberOf = (state: ShownState) => (whole && summary ? (summary.jobs[state] ?? 0) - (query.mirrored ? 0 : (summary.mirrored?.[state] ?? 0)) : undefined);
  const bad = (state: ShownState) => state === "failed" || state === "crashing";
  const tabOf = (state: ShownState): Tab => ({ name: state, href: href({ condition: state, sort: undefined }), count: numberOf(state), bad: bad(state) });
  const all = { name: "all", href: href({ condition: undefined, sort: undefined }), count: whole && summary ? statesByNeed.reduce((sum, state) => sum + numberOf(state)!, 0) : undefined };
  const marks = admin ? Object.entries(marked).map(([sort, name]) => ({ name, href: href({ condition: undefined, sort }) })) : [];
  const tabs = [all, ...statesByNeed.filter(bad).map(tabOf), ...marks, ...statesByNeed.filter((state) => !bad(state)).map(tabOf)];
  return <Tabs label="Lists" tabs={tabs} chosen={marked[query.sort ?? ""] ?? query.condition ?? "all"} />;
}

/** Says how many replications of mirrors a list leaves out, or that it has them. */
function Mirrored({ query, href, summary }: { query: Query; href: (change: Query) => string; summary?: Summary }) {
  if (query.mirrored !== undefined) {
    return (
      <>
        , with the replications that mirrors have made. <a href={href({ mirrored: undefined })}>Only the mirrors</a>
      </>
    );
  }
  const states = (query.condition?.split(",") ?? statesByNeed) as ShownState[];
  const left = states.reduce((sum, state) => sum + (summary?.mirrored?.[state] ?? 0), 0);
  if (left === 0 || query.q || query.mirror !== undefined || query.database || query.user !== undefined) return null;
  return (
    <>
      , without {some(left, "replication")} that mirrors have made. <a href={href({ mirrored: "true" })}>List {left === 1 ? "it" : "them"}, too</a>
    </>
  );
}

/** The heads of the columns by which a list can be sorted. */
function sortHeads(query: Query, href: (change: Query) => string, admin: boolean): (name: string) => string | SortHead {
  const byState = query.q ? undefined : "";
  const orders: Record<string, string | undefined> = { State: byState, Replication: "name", ...(admin && { Progress: "behind", Why: "failing" }) };
  return (name) => {
    const sort = orders[name];
    if (sort === undefined || query.mirror !== undefined) return name;
    return { name, href: href({ sort: sort || undefined }), sorted: (query.sort ?? byState ?? "name") === sort };
  };
}

function Pager({ page, at, searching, query, href }: { page: Jobs; at: number; searching: boolean; query: Query; href: (change: Query) => string }) {
  const shown = at + page.jobs.length;
  const counted = page.total_rows !== null && !query.q;
  const more = page.next_start_key && !searching && !(counted && shown === page.total_rows);
  const before = (first: number) => href({ at: first > 0 ? String(first) : undefined });
  return (
    <nav class="pager" aria-label="Pages">
      {(query.start || at > 0) && <a href={href({})}>First page</a>}
      {counted && at > pageSize && <a href={before(at - pageSize)}>Page before</a>}
      {more && <a href={href({ start: page.next_start_key, at: String(shown) })}>{query.q ? "Search further" : "Next page"}</a>}
      {more && counted && shown + pageSize < page.total_rows! && <a href={before(Math.floor((page.total_rows! - 1) / pageSize) * pageSize)}>Last page</a>}
    </nav>
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
function useJobs(filters: Record<string, string | undefined>, start: string | undefined, at: number): View<Jobs> & { searching: boolean } {
  const pathFrom = (start_key?: string, limit = pageSize) =>
    withQuery("_scheduler/jobs", { ...filters, start_key, skip: start_key === undefined && at > 0 ? at : undefined, limit });
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

/** Which jobs of a list a page has, and how many the list has, if that is known. Of a search, how many were found. */
function totalOf(page: Jobs, at: number, search?: string): string {
  const [found, total] = [page.jobs.length, page.total_rows];
  if (search) return `${count(found)} found in ${some(page.scanned, "job")}${page.next_start_key ? ", there are more to search" : ""}`;
  if (total === null) return found === 0 || (at === 0 && !page.next_start_key) ? some(found, "job") : `${count(at + 1)} to ${count(at + found)}`;
  if (found === 0 || found === total) return some(total, "job");
  const shorter = at + found > total; // than when the address of the page was made
  if (shorter && page.next_start_key) return `${count(found)} of ${some(total, "job")}`;
  const end = Math.min(at + found, total);
  return `${count(end - found + 1)} to ${count(end)} of ${some(total, "job")}`;
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

/** A table of jobs, of which some can be selected. Jobs that leave the list are no longer selected. */
function List({ jobs, heads }: { jobs: Job[]; heads: (name: string) => string | SortHead }) {
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const selectable = jobs.filter((job) => !job.mirror); // those of a mirror follow its document
  const selected = selectable.filter((job) => chosen.has(job.job_id));
  useEffect(() => {
    const ids = new Set(jobs.map((job) => job.job_id));
    setChosen((before) => ([...before].every((id) => ids.has(id)) ? before : new Set([...before].filter((id) => ids.has(id)))));
  }, [jobs]);
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
    heads("State"),
    heads("Replication"),
    "Source and target",
    heads("Progress"),
    heads("Why"),
    ...(nodes.size > 1 ? ["Node"] : []),
  ];
  return (
    <>
      <Bulk jobs={selected} all={selectable.length} select={(on) => set(selectable.map((job) => job.job_id), on)} />
      {jobs.length > 0 && (
        <Table jobs head={head} rows={jobs.map((job) => rowOf(job, nodes.size > 1, job.mirror ? undefined : [chosen.has(job.job_id), (on) => set([job.job_id], on)]))} />
      )}
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
      <JobState job={job} />,
      <a href={jobHref(job)} title={name}>
        {name}
      </a>,
      <small class="muted" title={`${job.source} to ${job.target}`}>
        {endpoint(job.source)} <span class="whole">→ </span>
        {targetOf(job)}
      </small>,
      mirror ? (
        <small>
          {count(mirror.states.up_to_date ?? 0)} of {some(mirror.databases, "database")} up to date
          {!!mirror.states.failing && <strong class="bad">, {count(mirror.states.failing)} failing</strong>}
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

/** A field of text that acts when its user stops typing. Its value may come back late: it replaces nothing that was typed since. */
function Typed({ label, value, set }: { label: string; value: string; set: (value: string) => void }) {
  const [text, setText] = useState(value);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const latest = useRef(set); // the other filters may change before the timer ends
  latest.current = set;
  useEffect(() => {
    if (timer.current === undefined) setText(value);
  }, [value]);
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
            timer.current = setTimeout(() => {
              timer.current = undefined;
              latest.current(next);
            }, 400);
          }}
        />
      )}
    </Field>
  );
}
