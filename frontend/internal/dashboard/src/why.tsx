// What a job does or waits for, in a line.

import type { ComponentChildren } from "preact";
import type { Job, Wait, WaitsFor } from "./api";
import { Doing, Due, For, Paused, Since } from "./parts";
import { shortError, some } from "./text";

export const hasEnded = (job: Job) => job.state === "completed" || job.state === "failed";

/** Why a job is in its state, and then its error, if there is one and it is wanted. */
export function Why({ job, errors = true }: { job: Job; errors?: boolean }) {
  const error = errors && job.info?.error;
  const state = stateOf(job);
  return (
    <span class="why">
      {state}
      {error && (
        <>
          {state && ": "}
          <span class="bad" title={error}>
            {shortError(error)}
          </span>
        </>
      )}
    </span>
  );
}

function stateOf(job: Job): ComponentChildren {
  const last = job.history[0];
  if (hasEnded(job)) return last && <>ended <Since time={last.timestamp} /></>;
  if (job.state === "running") return <Running job={job} />;
  if (job.paused) return <Paused job={job} />;
  if (job.parked) return <>waits for a change of its source <For since={job.parked} /></>;
  if (job.waits_for?.what === "slot") return <Slot waits={job.waits_for} job={job} />;
  if (job.next_run) return <>{job.error_count ? "runs again" : "runs"} <Due time={job.next_run} past="as soon as there is a slot" /></>;
  return <Slot waits={{ since: last?.timestamp }} job={job} />;
}

/** That a job waits for a slot, and how many jobs are before it. */
function Slot({ waits, job }: { waits: Pick<WaitsFor, "since" | "before" | "more">; job: Job }) {
  const last = job.history[0];
  return (
    <>
      waits for a slot
      {waits.since && (
        <>
          {" "}
          <For since={waits.since} />
        </>
      )}
      {waits.before !== undefined && `, ${waits.more ? "more than " : ""}${some(waits.before, "job")} of its ${job.database === null ? "user" : "database"} before it`}
      {last && stopped(last.type, last.reason)}
    </>
  );
}

/** Why a run was stopped of which nothing says why. */
export const stoppedAlone = "other jobs could run, or its node ended";

/** Why a job waits that has run before. */
function stopped(type: string, reason?: string): string {
  switch (type) {
    case "stopped":
      return `, stopped: ${reason ?? stoppedAlone}`;
    case "pending":
      return reason ? `, ${reason}` : ", as it has to start anew";
  }
  return "";
}

function Running({ job }: { job: Job }) {
  const activity = job.info?.activity;
  const refusing = activity?.refusing;
  const wait = activity?.waiting?.[0];
  return (
    <>
      {job.stuck_since && (
        <span class="bad">
          no progress <For since={job.stuck_since} />
          {(wait || activity) && ": "}
        </span>
      )}
      {wait ? <Waits wait={wait} /> : refusing ? <span class="bad">the target refuses everything: {refusing.latest.reason}</span> : activity ? <Doing activity={activity} /> : job.start_time && <>started <Since time={job.start_time} /></>}
    </>
  );
}

/** A request that is repeated or held back. */
function Waits({ wait }: { wait: Wait }) {
  return (
    <>
      {wait.endpoint}{" "}
      {wait.rate_limited ? "asked to wait" : <span class="bad">{wait.error}</span>}, attempt {wait.attempt}
      {wait.attempts ? ` of ${wait.attempts}` : ""} <Due time={wait.until} past="under way" />
    </>
  );
}
