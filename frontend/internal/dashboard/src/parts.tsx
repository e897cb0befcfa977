// What several pages are made of.

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { useClusterName } from "./cluster";
import type { Activity, Info, Job, JobName, State } from "./api";
import { type Failure, type View } from "./http";
import { notify } from "./notices";
import { hrefOf } from "./route";
import { clock, count, duration, endpoint, rate } from "./text";

const tickers = new Set<(now: number) => void>();
setInterval(() => {
  if (document.visibilityState !== "visible") return;
  const now = Date.now();
  for (const tick of tickers) tick(now);
}, 1000);

/** The time of day, and again each second, at once for all that show it. */
function useNow(): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    tickers.add(setNow);
    return () => void tickers.delete(setNow);
  }, []);
  return now;
}

/** How long ago a time was, or how long until then. */
export function Since({ time }: { time: string }) {
  const seconds = (useNow() - Date.parse(time)) / 1000;
  return (
    <time dateTime={time} title={clock(time)}>
      {seconds < 0 ? `in ${duration(-seconds)}` : `${duration(seconds)} ago`}
    </time>
  );
}

/** How long until something begins, or that its time has come. */
export function Due({ time, past }: { time: string; past: string }) {
  return useNow() < Date.parse(time) ? <Since time={time} /> : <>{past}</>;
}

/** How long something has lasted. */
export function For({ since }: { since: string }) {
  return (
    <time dateTime={since} title={`since ${clock(since)}`}>
      for {duration((useNow() - Date.parse(since)) / 1000)}
    </time>
  );
}

/** A page: its heading gets the focus when the page or another part of it is opened, so that the keyboard starts there. */
export function Page({ title, part, actions, children }: { title: string; part?: string; actions?: ComponentChildren; children: ComponentChildren }) {
  const heading = useRef<HTMLHeadingElement>(null);
  const cluster = useClusterName();
  useEffect(() => {
    const before = document.title;
    document.title = `${title} - ${cluster} - settee`;
    return () => void (document.title = before); // of the page below, if this one asks for the password
  }, [title, cluster]);
  useLayoutEffect(() => {
    heading.current?.focus({ preventScroll: true });
    scrollTo(0, 0);
  }, [part]);
  return (
    <>
      <header class="title">
        <h1 ref={heading} tabIndex={-1}>
          {title}
        </h1>
        {actions && <div class="actions">{actions}</div>}
      </header>
      {children}
    </>
  );
}

export function Panel({ title, children, aside }: { title: string; children: ComponentChildren; aside?: ComponentChildren }) {
  const id = useId();
  return (
    <section class="panel" aria-labelledby={id}>
      <header>
        <h2 id={id}>{title}</h2>
        {aside}
      </header>
      {children}
    </section>
  );
}

/** Why a view cannot be shown, or that what is shown is not the latest. */
export function Trouble({ failure, stale }: { failure?: Failure; stale?: boolean }) {
  if (!failure) return null;
  return (
    <p class="trouble" role="alert">
      {stale && "This is not the latest. "}
      {failure.reason || failure.code}
      {failure.status > 0 && <small> ({failure.status})</small>}
    </p>
  );
}

/** A line of a list of facts, none without a value. */
export function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  if (children === null || children === undefined || children === false || children === "") return null;
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

/** Shows the data of a view as soon as there is some, and its failure. */
export function Loaded<T>({ view, children }: { view: View<T>; children: (data: T) => ComponentChildren }) {
  return (
    <>
      <Trouble failure={view.failure} stale={view.data !== undefined} />
      {view.data !== undefined ? children(view.data) : !view.failure && <p class="muted">Loading…</p>}
    </>
  );
}

/** A state. It is red if something is wrong although the state is not. */
export function StateBadge({ state, bad }: { state: State | string; bad?: boolean }) {
  return <span class={`state ${bad ? "failed" : state}`}>{state}</span>;
}

/** The state of a job. A mirror whose databases fail is running all the same. */
export function JobState({ job }: { job: Job }) {
  return <StateBadge state={job.condition.state} bad={job.info?.mirror && job.condition.attention} />;
}

/** The address of the page of a job. */
export function jobHref(job: Pick<Job, "job_id">): string {
  return hrefOf(["jobs", job.job_id]);
}

/** What a job is called: its document, its database if a mirror has made it, or its user. */
export function jobName(job: JobName): string {
  if (job.mirrored_database !== undefined) return job.mirrored_database;
  return job.doc_id !== null ? `${job.database} / ${job.doc_id}` : (job.user ?? "") ? `_replicate of ${job.user}` : "_replicate";
}

/** The target of a replication, for lists beside its source: a host that both have is left out. */
export function targetOf(job: Pick<Job, "source" | "target">): string {
  const [source, target] = [endpoint(job.source), endpoint(job.target)];
  const host = source.slice(0, source.indexOf("/") + 1);
  return host && target.startsWith(host) ? target.slice(host.length - 1) : target;
}

/** The endpoints of a replication. */
export function Endpoints({ source, target }: { source: string; target: string }) {
  return (
    <span class="endpoints">
      <span title={source}>{endpoint(source)}</span>
      <span aria-label="to"> → </span>
      <span title={target}>{endpoint(target)}</span>
    </span>
  );
}

interface Seen {
  written: number;
  pending?: number;
  at: number;
}

const paceSeconds = 30;

/** How fast a job is, and how long it still takes, from its numbers in the last seconds. Only what was seen counts, so it is
 * not known at first, and after nobody could see the page. */
function usePace(info: Info | null): { perSecond?: number; left?: number } {
  const now = useNow() / 1000;
  const watched = useRef<{ points: Seen[]; at: number; old?: Info | null }>({ points: [], at: now });
  const { current } = watched;
  if (now - current.at > 5) Object.assign(current, { points: [], old: info }); // the page was hidden, so this may be old
  current.at = now;
  const { points } = current;
  const written = info?.docs_written ?? 0;
  const pending = info?.changes_pending ?? undefined;
  let last = points.at(-1);
  if (last && written < last.written) points.length = 0; // the job has started anew
  if (info !== current.old && (last?.written !== written || last.pending !== pending)) points.push({ written, pending, at: now });
  while (points.length > 1 && points[1]!.at <= now - paceSeconds) points.shift();
  const first = points[0];
  last = points.at(-1);
  if (!first || !last) return {};
  const seconds = Math.min(now - first.at, paceSeconds); // since the first the numbers were the same until the window began
  if (seconds < 2) return {};
  const done = first.pending !== undefined && last.pending !== undefined ? first.pending - last.pending : 0;
  return { perSecond: (last.written - first.written) / seconds, left: done > 0 && last.pending ? (last.pending / done) * seconds : undefined };
}

/** How far a run is. The bar is there while the number of pending changes is known, and for lists only if there are some. */
export function Progress({ job, brief }: { job: Job; brief?: boolean }) {
  const { perSecond, left } = usePace(job.info);
  const info = job.info;
  if (!info || info.docs_written === undefined) return null;
  const pending = info.changes_pending;
  // Both are changes: those of this replication that were checked, and those that are left.
  const checked = info.revisions_checked ?? info.docs_read ?? 0;
  const known = job.state === "running" && typeof pending === "number" && pending + checked > 0 && (pending > 0 || !brief);
  return (
    <div class={known && pending === 0 ? "progress idle" : "progress"}>
      {known && <progress max={pending + checked} value={checked} aria-label={`progress of ${jobName(job)}`} />}
      <small>
        {count(info.docs_written)} written
        {typeof pending === "number" && job.state === "running" && (pending > 0 || !brief) && `, ${count(pending)} ${brief ? "left" : pending === 1 ? "change left" : "changes left"}`}
        {!!info.doc_write_failures && (
          <>
            , <strong class="bad">{count(info.doc_write_failures)} refused</strong>
          </>
        )}
        {job.state === "running" && perSecond !== undefined && perSecond > 0 && `, ${rate(perSecond)} a second`}
        {job.state === "running" && left !== undefined && `, about ${duration(left)} left`}
      </small>
    </div>
  );
}


/** Why a run waits: the requests that are repeated or held back. */
export function Waiting({ activity }: { activity: Activity }) {
  return (
    <>
      {activity.waiting?.map((wait) => (
        <p class="trouble" key={wait.endpoint}>
          <span title={wait.fault.text}>{wait.fault.message}.</span>{" "}
          <small>
            This has gone on <For since={wait.since} />. Attempt {wait.attempt}
            {wait.attempts ? ` of ${wait.attempts}` : ""} is <Due time={wait.until} past="under way" />.
          </small>
        </p>
      ))}
    </>
  );
}

/** A list of links of which one is chosen, each with how many there are of it, if that is known. */
export function Tabs({ label, tabs, chosen }: { label: string; tabs: Tab[]; chosen: string }) {
  return (
    <nav class="tabs" aria-label={label}>
      {tabs.map(({ name, href, count: n, bad }) => (
        <a key={name} href={href} aria-current={name === chosen ? "true" : undefined}>
          {name} {n !== undefined && <strong class={bad && n > 0 ? "bad" : undefined}>{count(n)}</strong>}
        </a>
      ))}
    </nav>
  );
}

export interface Tab {
  name: string;
  href: string;
  count?: number;
  /** Whether something is wrong if there are any. */
  bad?: boolean;
}

/** The head of a column by which a table can be sorted. */
export interface SortHead {
  name: string;
  /** The address of the same page in that order. */
  href: string;
  sorted: boolean;
}

type Head = ComponentChildren | SortHead;

const isSortHead = (head: Head): head is SortHead => typeof head === "object" && head !== null && "sorted" in head;

/** A row of a table. The cell at header, if there is one, names it. */
export interface Row {
  key: string;
  cells: ComponentChildren[];
  header?: number;
}

/** A table. On a narrow page each row is a block, in which each cell has the name of its column in front. The roles say
 * that it is a table all the same. */
export function Table({ head, rows, jobs }: { head: Head[]; rows: Row[]; jobs?: boolean }) {
  return (
    <table role="table" class={jobs ? "jobs" : undefined}>
      <thead role="rowgroup">
        <tr role="row">
          {head.map((name, i) =>
            isSortHead(name) ? (
              <th key={i} role="columnheader" scope="col" class="sort" aria-sort={name.sorted ? "ascending" : undefined}>
                <a href={name.href}>{name.name}</a>
              </th>
            ) : (
              <th key={i} role="columnheader" scope="col">
                {name}
              </th>
            ),
          )}
        </tr>
      </thead>
      <tbody role="rowgroup">
        {rows.map((row) => (
          <tr key={row.key} role="row">
            {row.cells.map((cell, i) =>
              i === row.header ? (
                <th key={i} role="rowheader" scope="row" data-label={labelOf(head[i])}>
                  {cell}
                </th>
              ) : (
                <td key={i} role="cell" data-label={labelOf(head[i])}>
                  {cell}
                </td>
              ),
            )}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

const labelOf = (head: Head) => (isSortHead(head) ? head.name : typeof head === "string" ? head : undefined);

/** An action that takes a while: whether it is under way, why it failed, and a function that starts it. When it has succeeded,
 * the message done is shown. A failure is shown as a message, too, if the component has gone by then. */
function useAction(name: string, run: () => Promise<unknown>, done?: string, close?: () => void): { busy: boolean; failure: string; act: () => Promise<void> } {
  const [busy, setBusy] = useState(false);
  const [failure, setFailure] = useState("");
  const shown = useRef(true);
  useEffect(() => () => void (shown.current = false), []);
  const act = async () => {
    setBusy(true);
    setFailure("");
    try {
      await run();
      if (done) notify(done);
      close?.();
    } catch (error) {
      const reason = (error as Failure).reason || String(error);
      if (shown.current) setFailure(reason);
      else notify(`${name}: ${reason}`, true);
    } finally {
      setBusy(false);
    }
  };
  return { busy, failure, act };
}

/** A button whose action takes a while. It says what went wrong. With confirm, which says what the action does, it asks
 * first: the question is the title of the dialog and its button, if the text of this button is too short for that. The
 * dialog says and does what it did when it was opened, also if the page has changed since. */
export function Action({
  children,
  run,
  danger,
  confirm,
  question = String(children),
  done,
}: {
  children: ComponentChildren;
  run: () => Promise<unknown>;
  danger?: boolean;
  confirm?: ComponentChildren;
  question?: string;
  done?: string;
}) {
  const [asked, setAsked] = useState<{ run: () => Promise<unknown>; confirm: ComponentChildren; question: string; done?: string }>();
  const { busy, failure, act } = useAction(question, run, done);
  return (
    <span class="action">
      <button type="button" class={danger ? "danger" : ""} disabled={busy} onClick={() => (confirm ? setAsked({ run, confirm, question, done }) : act())}>
        {children}
      </button>
      {failure && (
        <span class="bad" role="alert">
          {failure}
        </span>
      )}
      {asked && (
        <Dialog title={asked.question} action={asked.question} run={asked.run} done={asked.done} danger={danger} close={() => setAsked(undefined)}>
          <p>{asked.confirm}</p>
        </Dialog>
      )}
    </span>
  );
}

/** A question, whose answer is an action. It stays open if the action fails, and says why. Without one it is a note. The
 * focus is on its first field. Without fields it is on the action, or beside it if the action is dangerous. */
export function Dialog({
  title,
  action,
  run = async () => {},
  done,
  danger,
  disabled,
  close,
  children,
}: {
  title: string;
  action?: ComponentChildren;
  run?: () => Promise<unknown>;
  done?: string;
  danger?: boolean;
  disabled?: boolean;
  close: () => void;
  children: ComponentChildren;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  const other = useRef<HTMLButtonElement>(null);
  const id = useId();
  useLayoutEffect(() => {
    dialog.current?.showModal(); // before anything can close it
    if (danger && !dialog.current?.querySelector("input, select, textarea")) other.current?.focus();
  }, []);
  const leave = () => dialog.current?.close(); // the browser gives the focus back, which it does not if the dialog just goes
  const { busy, failure, act } = useAction(title, run, done, leave);
  return (
    <dialog ref={dialog} aria-labelledby={id} onClose={close}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void act();
        }}
      >
        <h2 id={id}>{title}</h2>
        {children}
        {failure && (
          <p class="trouble" role="alert">
            {failure}
          </p>
        )}
        <div class="buttons">
          {action && (
            <button type="submit" class={danger ? "danger" : "primary"} disabled={busy || disabled}>
              {action}
            </button>
          )}
          <button type="button" ref={other} onClick={leave}>
            {action ? "Not now" : "Close"}
          </button>
        </div>
      </form>
    </dialog>
  );
}

/** A field of a form, with its help. */
export function Field({ label, help, children }: { label: string; help?: ComponentChildren; children: (id: string, described?: string) => JSX.Element }) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children(id, help ? `${id}-help` : undefined)}
      {help && <small id={`${id}-help`}>{help}</small>}
    </div>
  );
}

/** Puts a text into the clipboard. Browsers without one for this page, as without TLS, show the text. */
export function Copy({ text, children }: { text: () => string; children: ComponentChildren }) {
  const [copied, setCopied] = useState("");
  const [shown, setShown] = useState("");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text());
      setCopied(text());
    } catch {
      setShown(text());
    }
  };
  return (
    <>
      <button type="button" onClick={copy}>
        {copied === text() ? "Copied" : children}
      </button>
      {shown && (
        <Dialog title={String(children)} close={() => setShown("")}>
          <textarea class="code" rows={12} readOnly aria-label={String(children)} onFocus={(event) => event.currentTarget.select()}>
            {shown}
          </textarea>
        </Dialog>
      )}
    </>
  );
}

/** Groups what has one key, in the order of the first of each group. */
export function groupBy<T>(list: T[], keyOf: (of: T) => string): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const one of list) {
    const group = groups.get(keyOf(one));
    if (group) group.push(one);
    else groups.set(keyOf(one), [one]);
  }
  return groups;
}
