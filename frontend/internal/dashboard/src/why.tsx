// What the node tells people about a job, in a line. The node decides it; here it gets the times.

import type { Condition, Job } from "./api";
import { Due, For, Since } from "./parts";
import { some } from "./text";

export const hasEnded = (job: Job) => job.condition.state === "completed" || job.condition.state === "failed";

export function markOf(condition: Condition, type: string) {
  return condition.marks?.find((mark) => mark.type === type);
}

/** What fails, if there is something and it is wanted, and why a job is in its state. */
export function Why({ job, errors = true }: { job: Job; errors?: boolean }) {
  const condition = job.condition;
  const stuck = markOf(condition, "stuck");
  const fault = condition.fault;
  const told = fault && condition.message.endsWith(`: ${fault.message}`);
  return (
    <span class="why">
      {condition.acknowledged && "acknowledged; "}
      {errors && fault && (
        <>
          <span class="bad" title={fault.text}>
            {fault.message}
          </span>
          {"; "}
        </>
      )}
      {stuck?.since && (
        <span class="bad">
          no progress <For since={stuck.since} />:{" "}
        </span>
      )}
      {told ? condition.message.slice(0, -fault.message.length - 2) : condition.message} <Times job={job} />
      <Before job={job} />
    </span>
  );
}

function Times({ job }: { job: Job }) {
  const { since, until } = job.condition;
  if (until) return <>(goes on <Due time={until} past="at any moment" />)</>;
  if (!since) return null;
  return hasEnded(job) ? <Since time={since} /> : <For since={since} />;
}

/** How many jobs are before one that waits for a slot, if that is known. */
function Before({ job }: { job: Job }) {
  const queue = job.condition.queue;
  if (!queue) return null;
  return <>{`, ${queue.more ? "more than " : ""}${some(queue.before, "job")} of its ${job.database === null ? "user" : "database"} before it`}</>;
}
