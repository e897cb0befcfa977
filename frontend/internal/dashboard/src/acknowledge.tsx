// Says that somebody knows of the trouble of a job, or of all jobs of a problem.

import { useState } from "preact/hooks";
import type { Acknowledgement, Job, Problem } from "./api";
import { request } from "./http";
import { notify } from "./notices";
import { Action, Dialog, Field, For, jobName } from "./parts";
import { clock, some } from "./text";

const hour = 3_600_000;
const ends: Record<string, number> = { "an hour": hour, "a day": 24 * hour, "a week": 7 * 24 * hour, "30 days": 30 * 24 * hour };

/** A button that asks for a note and an end. send is called with the two. */
function Acknowledge({ what, send }: { what: string; send: (ack: { note: string; until?: string }) => Promise<void> }) {
  const [asking, setAsking] = useState(false);
  const [note, setNote] = useState("");
  const [end, setEnd] = useState("a day");
  const run = async () => {
    const until = ends[end] && new Date(Date.now() + ends[end]).toISOString();
    await send({ note, ...(until && { until }) });
    setNote("");
  };
  return (
    <>
      <button type="button" onClick={() => setAsking(true)}>
        Acknowledge
      </button>
      {asking && (
        <Dialog title="Acknowledge" action="Acknowledge" run={run} close={() => setAsking(false)}>
          <p>
            {what} needs nobody's attention until then, or until something else happens to it. It is tried again as before.
          </p>
          <Field label="Note">{(id) => <input id={id} maxLength={500} value={note} onInput={(event) => setNote(event.currentTarget.value)} />}</Field>
          <Field label="For">
            {(id) => (
              <select id={id} value={end} onChange={(event) => setEnd(event.currentTarget.value)}>
                {Object.keys(ends).map((name) => (
                  <option key={name}>{name}</option>
                ))}
                <option value="">as long as it lasts</option>
              </select>
            )}
          </Field>
        </Dialog>
      )}
    </>
  );
}

const pathOf = (job: Job) => `_scheduler/jobs/${encodeURIComponent(job.job_id)}/_acknowledge`;

export function AcknowledgeJob({ job }: { job: Job }) {
  return (
    <Acknowledge
      what={jobName(job)}
      send={async (ack) => {
        await request("POST", pathOf(job), ack);
        notify(`${jobName(job)}: acknowledged`);
      }}
    />
  );
}

export function AcknowledgeProblem({ problem }: { problem: Problem }) {
  const { kind, code, side, host, mirror } = problem;
  return (
    <Acknowledge
      what={problem.jobs === 1 ? "The job" : "Each of the jobs"}
      send={async (ack) => {
        const { jobs } = await request<{ jobs: number }>("POST", "_scheduler/problems/_acknowledge", { kind, code, side, host, mirror, ...ack });
        notify(`${some(jobs, "job")}: acknowledged`);
      }}
    />
  );
}

/** The acknowledgement of a job, and a way to take it back. */
export function Acknowledged({ job, ack }: { job: Job; ack: Acknowledgement }) {
  return (
    <div class="buttons acknowledged">
      <p>
        Acknowledged{ack.by && ` by ${ack.by}`} <For since={ack.at} />
        {ack.until && `, until ${clock(ack.until)}`}
        {ack.note && `: ${ack.note}`}
      </p>
      <Action
        run={async () => {
          await request("DELETE", pathOf(job));
          notify(`${jobName(job)}: the acknowledgement is taken back`);
        }}
      >
        Take it back
      </Action>
    </div>
  );
}
