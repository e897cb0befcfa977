// What can be done with jobs, one or several.

import type { Condition, Job, JobName, ReplicationDocument } from "./api";
import { deleteDocument, Failure, pathOf, request } from "./http";
import { notify } from "./notices";
import { jobName } from "./parts";
import { some } from "./text";
import { hasEnded } from "./why";

const inParallel = 4;

/** The path of the document of a job, nothing without one. */
export function documentPathOf(job: JobName): string | undefined {
  return job.database !== null && job.doc_id !== null ? pathOf(job.database, job.doc_id) : undefined;
}

/** A document without what its last replication has left in it. */
export function plain(doc: ReplicationDocument): Record<string, unknown> {
  return Object.fromEntries(Object.entries(doc).filter(([name]) => !name.startsWith("_replication")));
}

/** Changes a document of a replicator database, so that it is replicated anew. */
export async function rewrite(path: string, change: (doc: Record<string, unknown>) => Record<string, unknown> = (doc) => doc): Promise<void> {
  await request("PUT", path, change(plain(await request<ReplicationDocument>("GET", path))));
}

/** Runs a job that waits, or one that has ended again. */
export async function run(job: JobName & { ended: boolean }): Promise<string> {
  const path = documentPathOf(job);
  if (!job.ended) {
    const { condition } = await request<{ condition: Condition }>("POST", `_scheduler/jobs/${encodeURIComponent(job.job_id)}/_run`);
    if (condition.state === "paused") return `${condition.message}, and runs as soon as it is resumed`;
    return condition.state === "running" ? "already running" : "will run as soon as there is a slot";
  }
  if (!path) throw new Failure(0, "ended", "it has ended and has no document: post it to _replicate again");
  await rewrite(path);
  return "will run again as soon as there is a slot";
}

/** Makes a mirror compare everything at once, the lists of databases and then each database with its _security. */
export async function compareMirror(job: JobName): Promise<string> {
  const { condition } = await request<{ condition: Condition }>("POST", `_scheduler/jobs/${encodeURIComponent(job.job_id)}/_run`);
  return condition.state === "paused" ? `${condition.message}, and compares all databases as soon as it is resumed` : "compares all databases now";
}

/** Has both ends of a job compared. */
export async function verify(job: JobName): Promise<string> {
  await request("POST", `_scheduler/jobs/${encodeURIComponent(job.job_id)}/_verify`);
  return "a node compares both ends";
}

/** Makes a mirror prove that its target has everything. */
export async function verifyMirror(job: JobName): Promise<string> {
  const { condition } = await request<{ condition: Condition }>("POST", `_scheduler/jobs/${encodeURIComponent(job.job_id)}/_verify`);
  return condition.state === "paused" ? `${condition.message}, and verifies all databases as soon as it is resumed` : "verifies all databases now";
}

/** Deletes the document of a job, or ends a job without one. */
export async function remove(job: Job): Promise<string> {
  if (job.database !== null && job.doc_id !== null) {
    await deleteDocument(job.database, job.doc_id);
    return "deleted";
  }
  if (hasEnded(job)) throw new Failure(0, "ended", "it has ended, and has no document to delete");
  await request("POST", "_replicate", { replication_id: job.id, cancel: true });
  return "ended";
}

/** Whether a job can be paused alone, a mirror with its databases: it has a document, and has not ended. */
export function canPause(job: Job): boolean {
  return documentPathOf(job) !== undefined && !hasEnded(job);
}

/** Whether the document of a job says that it is paused. */
export const isPaused = (job: Job) => job.condition.state === "paused" && job.condition.reason === "document";

/** Pauses a job, or lets it run again. The rest of its document stays as it is. */
export async function setPaused(job: Job, paused: boolean): Promise<string> {
  const path = documentPathOf(job)!;
  const { paused: _, ...doc } = await request<ReplicationDocument>("GET", path);
  await request("PUT", path, paused ? { ...doc, paused } : doc);
  const its = job.info?.mirror ? ", with all its databases" : "";
  return paused ? `paused${its}: a run writes a checkpoint and stops` : `resumed${its}`;
}

/** Acts on each job, some at a time, and says what happened, in one message for all jobs to which the same happened. */
export async function forEach<T extends JobName>(jobs: T[], act: (job: T) => Promise<string>): Promise<void> {
  const happened = new Map<string, T[]>();
  const failed = new Map<string, T[]>();
  const note = (to: Map<string, T[]>, text: string, job: T) => to.set(text, [...(to.get(text) ?? []), job]);
  const left = [...jobs];
  const work = async () => {
    for (let job = left.shift(); job; job = left.shift()) {
      try {
        note(happened, await act(job), job);
      } catch (error) {
        note(failed, (error as Failure).reason || String(error), job);
      }
    }
  };
  await Promise.all(Array.from({ length: inParallel }, work));
  const whom = (of: T[]) => (of.length === 1 ? jobName(of[0]!) : some(of.length, "job"));
  for (const [text, of] of happened) notify(`${whom(of)}: ${text}`);
  for (const [text, of] of failed) notify(`${whom(of)}: ${text}`, true);
}
