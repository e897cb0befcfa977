// What can be done with several jobs of a list at once.

import { useState } from "preact/hooks";
import { canPause, forEach, isPaused, remove, run, setPaused } from "./actions";
import type { Job } from "./api";
import { Action, Dialog } from "./parts";
import { count, some } from "./text";
import { hasEnded } from "./why";

export function Bulk({ jobs, all, select }: { jobs: Job[]; all: number; select: (on: boolean) => void }) {
  const [deleting, setDeleting] = useState<Job[]>(); // the dialog stays when its jobs have left the list
  const paused = jobs.filter((job) => isPaused(job));
  const pausable = jobs.filter((job) => canPause(job) && !isPaused(job));
  const waiting = jobs.filter((job) => job.condition.state !== "running");
  return (
    <>
      {jobs.length > 0 && (
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
          <button type="button" class="danger" onClick={() => setDeleting(jobs)}>
            Delete
          </button>
          <button type="button" onClick={() => select(false)}>
            Clear the selection
          </button>
        </div>
      )}
      {deleting && <Delete jobs={deleting} close={() => setDeleting(undefined)} />}
    </>
  );
}

function Delete({ jobs, close }: { jobs: Job[]; close: () => void }) {
  const question = `Delete ${some(jobs.length, "replication")}`;
  return (
    <Dialog danger title={question} action={question} run={() => forEach(jobs, remove)} close={close}>
      <p>Their documents are deleted, and their jobs end. Jobs without a document end. What was copied stays.</p>
    </Dialog>
  );
}
