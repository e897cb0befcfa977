// Turning a mirror round from its page, in the steps of `settee failover`. Only the node is asked, which compares the servers itself.

import { useEffect, useState } from "preact/hooks";
import { compareMirror, documentPathOf, plain, verifyMirror } from "./actions";
import type { Job, MirrorInfo, ReplicationDocument } from "./api";
import { Failure, pause, request } from "./http";
import { Action, Panel } from "./parts";
import { isAsWritten } from "./written";
import { count, endpoint, some } from "./text";
import { hasEnded } from "./why";

/** Whether the target has everything of all databases. */
export const upToDate = (mirror?: MirrorInfo) =>
  mirror?.last_look !== undefined && !mirror.error && (mirror.states.up_to_date ?? 0) === mirror.databases;

/** What is kept in the browser of a mirror that was turned round, so that the page goes on after it was closed: the revision that did
 * it, and the servers. */
interface Turned {
  rev: string;
  from: string;
  to: string;
}

const keyOf = (job: Job) => `settee failover ${job.job_id}`;

function readTurned(job: Job): Turned | undefined {
  try {
    return JSON.parse(localStorage.getItem(keyOf(job)) ?? "null") ?? undefined;
  } catch {
    return undefined; // the browser keeps nothing
  }
}

function writeTurned(job: Job, turned?: Turned): void {
  try {
    if (turned) localStorage.setItem(keyOf(job), JSON.stringify(turned));
    else localStorage.removeItem(keyOf(job));
  } catch {
    // The browser keeps nothing: the page of the mirror shows how far it is anyway.
  }
}

/** A failover that goes on, or the latest one, as the pages show it. */
interface Progress {
  step: 1 | 2 | 3;
  says: string;
  failed?: string;
  stop: () => void;
}

/** The failovers that this dashboard does, by job id. They go on while another page is shown. */
const going = new Map<string, Progress>();
const listeners = new Set<() => void>();

function show(job: Job, progress?: Progress): void {
  if (progress) going.set(job.job_id, progress);
  else going.delete(job.job_id);
  for (const listener of listeners) listener();
}

const lookEvery = 1000;
/** After how many looks without a comparison that is under way it is asked for again: two within a second look alike. */
const askEvery = 5;

class Stopped extends Error {}

/** The first three steps: the document is written only if the target has everything, and if nobody has changed it meanwhile. */
async function turn(job: Job, signal: AbortSignal, say: (step: Progress["step"], says: string) => void): Promise<Turned> {
  const path = documentPathOf(job)!;
  const before = await request<ReplicationDocument>("GET", path);
  const look = async () => {
    await pause(lookEvery, signal);
    if (signal.aborted) throw new Stopped();
    const now = await request<Job>("GET", `_scheduler/jobs/${encodeURIComponent(job.job_id)}`);
    if (hasEnded(now)) throw new Failure(0, "ended", `The mirror has ended: it ${now.condition.message}.`);
    if (now.condition.state === "paused") throw new Failure(0, "paused", `The mirror ${now.condition.message}: resume it first.`);
    return now.info?.mirror;
  };
  const copied = async () => {
    for (;;) {
      const mirror = await look();
      say(1, mirror?.error ?? `${count(mirror?.states.up_to_date ?? 0)} of ${some(mirror?.databases, "database")} up to date`);
      if (upToDate(mirror)) return mirror!;
    }
  };
  let mirror = await copied();
  for (;;) {
    // Comparisons that began before do not count.
    const old = [mirror.verified?.began, mirror.verifying_since];
    let idle = 0;
    do {
      if (!mirror.verifying_since && idle++ % askEvery === 0) await verifyMirror(job);
      say(2, "the mirror compares all databases");
      mirror = (await look()) ?? mirror;
    } while (!mirror.verified || old.includes(mirror.verified.began));
    const { different, failed, first } = mirror.verified;
    if (different + failed === 0) break;
    const why = first?.map(({ database, reason }) => `${database}: ${reason}`).join("; ");
    say(2, `${count(different)} different, ${count(failed)} not compared (${why}). The mirror compares everything, and then it verifies again`);
    await compareMirror(job);
    for (let i = 0; i < askEvery; i++) await look();
    mirror = await copied();
  }
  say(3, "the document is turned round");
  if (signal.aborted) throw new Stopped();
  const { source, target, source_proxy, target_proxy, ...rest } = plain(before);
  const turned = { ...rest, source: target, target: source, source_proxy: target_proxy, target_proxy: source_proxy };
  return { rev: await write(path, turned, signal), from: job.source, to: job.target };
}

const writeAttempts = 3;

/** Writes the document, and returns its revision. If the node does not say that it has written the document, the document is read again,
 * and the failure says whether it was turned round. */
async function write(path: string, turned: Record<string, unknown>, signal: AbortSignal): Promise<string> {
  for (let attempt = 1; ; attempt++) {
    try {
      return (await request<{ rev: string }>("PUT", path, turned)).rev; // without proxies if there are none
    } catch (error) {
      const { status, code, reason } = error as Failure;
      const now = await request<ReplicationDocument>("GET", path).catch((unread: Failure) => (unread.status === 404 ? null : undefined));
      if (now && isAsWritten(now, turned)) return now._rev;
      const changed = now !== undefined && now?._rev !== turned._rev;
      if (changed || (status > 0 && status < 500) || attempt === writeAttempts) {
        const turnedRound = now === undefined ? "It is not known whether the document was turned round" : "The document was not turned round";
        throw new Failure(
          status,
          code,
          `${changed ? "Somebody has changed the document meanwhile." : reason} ${turnedRound}: see above which way the mirror goes before the writers start.`,
        );
      }
    }
    await pause(lookEvery, signal);
  }
}

/** Begins a failover, which goes on in this dashboard. */
async function begin(job: Job): Promise<void> {
  const stopped = new AbortController();
  const stop = () => stopped.abort();
  let step: Progress["step"] = 1;
  const say = (at: Progress["step"], says: string) => {
    step = at;
    show(job, { step, says, stop });
  };
  say(1, "the mirror is asked");
  try {
    writeTurned(job, await turn(job, stopped.signal, say));
    show(job);
  } catch (error) {
    if (error instanceof Stopped) return show(job);
    show(job, { step, says: "", failed: (error as Failure).reason || String(error), stop });
  }
}

/** What turns a mirror round, and how far that is. */
export function Failover({ job, mirror, doc }: { job: Job; mirror: MirrorInfo; doc?: ReplicationDocument }) {
  const [, redraw] = useState(0);
  useEffect(() => {
    const listener = () => redraw((n) => n + 1);
    listeners.add(listener);
    return () => void listeners.delete(listener);
  }, []);
  const progress = going.get(job.job_id);
  const turned = readTurned(job);
  const [from, to] = [endpoint(job.source), endpoint(job.target)];
  if (!doc || hasEnded(job)) return null;
  const options = doc.mirror as { prefix?: string } | undefined;
  const busy = progress !== undefined && progress.failed === undefined;
  const isTurned = turned?.rev === doc._rev;
  const cannot =
    doc.continuous !== true
      ? "It is not continuous, and cannot be turned round."
      : options?.prefix
        ? "It has a prefix, and cannot be turned round: the databases would get it again on the way back."
        : undefined;
  return (
    <Panel
      title="Failover"
      aside={
        busy ? (
          progress.step < 3 && <Action run={async () => progress.stop()}>Stop</Action>
        ) : (
          !cannot && (
            <Action
              run={async () => void begin(job)}
              question="Turn the mirror round"
              confirm={
                <>
                  Have all writers of {from} stopped? {to} has to have everything of {from} first, with each _security. Then the document is written with both exchanged:{" "}
                  {to} is mirrored to {from}, and the writers may start at {to}. Until then nothing is changed.
                </>
              }
            >
              Fail over
            </Action>
          )
        )
      }
    >
      {progress?.failed !== undefined && (
        <p class="trouble" role="alert">
          {progress.failed} {progress.step < 3 && `Nothing was changed: the writers may start at ${from} again.`}
        </p>
      )}
      {busy && (
        <>
          <p role="status">
            {progress.step} of 4: {steps(from, to)[progress.step - 1]}. {progress.says && <span class="muted">{progress.says}.</span>}
          </p>
          <small class="muted">
            Nothing is changed before the third step. If this page is closed before, start the writers at {from} again, or fail over again.
          </small>
        </>
      )}
      {isTurned && !busy && <Fourth job={job} mirror={mirror} turned={turned} />}
      {!busy && !isTurned && (
        <p class="muted">
          {cannot ?? `To move the writers of ${from} to ${to}: it is proved that ${to} has everything, and then ${to} is mirrored to ${from}.`}
          {!cannot && job.doc_id && ` settee failover ${job.doc_id} does the same in a terminal.`}
        </p>
      )}
    </Panel>
  );
}

const steps = (from: string, to: string) => [
  `waiting until the mirror has copied everything of ${from}`,
  `comparing ${to} with ${from}`,
  `turning the document round, so that ${to} is mirrored to ${from}`,
];

/** The fourth step, which the mirror does by itself: it is shown in each page, also after this one was closed. */
function Fourth({ job, mirror, turned }: { job: Job; mirror: MirrorInfo; turned: Turned }) {
  const [from, to] = [endpoint(turned.from), endpoint(turned.to)];
  const back = `To go back, stop them and fail over again.`;
  if (upToDate(mirror)) {
    return (
      <p>
        {to} is mirrored to {from}, and everything is there. The writers may be at {to}. {back}
      </p>
    );
  }
  return (
    <>
      <p role="status">
        4 of 4: waiting until {from} has everything of {to}. {count(mirror.states.up_to_date ?? 0)} of {some(mirror.databases, "database")} up to date.
      </p>
      <p>
        The document was turned round: the writers may start at {to}. {back}
      </p>
      <small class="muted">This page may be closed: the mirror goes on by itself{job.doc_id ? `, and settee jobs show ${job.doc_id} says how far it is` : ""}.</small>
    </>
  );
}
