// What can be done with several jobs of a list at once.

import { canPause, forEach, isPaused, remove, run, setPaused } from "./actions";
import type { Job } from "./api";
import { Action } from "./parts";
import { count, some } from "./text";
import { hasEnded } from "./why";

export function Bulk({ jobs, all, select }: { jobs: Job[]; all: number; select: (on: boolean) => void }) {
  if (jobs.length === 0) return null;
  const paused = jobs.filter((job) => isPaused(job));
  const pausable = jobs.filter((job) => canPause(job) && !isPaused(job));
  const waiting = jobs.filter((job) => job.condition.state !== "running");
  return (
    <div class="bulk" role="group" aria-label="The selected jobs">
      <strong>
        {count(jobs.length)} of {count(all)} selected
      </strong>
      {jobs.length < all && (
        <button type="button" onClick={() => select(true)}>
          Select all
        </button>
      )}
      {waiting.length > 0 && <Action run={() => forEach(waiting.map((job) => ({ ...job, ended: hasEnded(job) })), run)}>Run now</Action>}
      {pausable.length > 0 && <Action run={() => forEach(pausable, (job) => setPaused(job, true))}>Pause</Action>}
      {paused.length > 0 && <Action run={() => forEach(paused, (job) => setPaused(job, false))}>Resume</Action>}
      <Action
        danger
        question={`Delete ${some(jobs.length, "replication")}`}
        confirm="Their documents are deleted, and their jobs end. Jobs without a document end. What was copied stays."
        run={async () => {
          await forEach(jobs, remove);
          select(false);
        }}
      >
        Delete
      </Action>
      <button type="button" onClick={() => select(false)}>
        Clear the selection
      </button>
    </div>
  );
}
