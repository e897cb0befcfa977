// A test of the connections of a replication that is not saved yet. A frontend opens no connection to the outside, so a
// node that replicates makes it: with a replication of no documents for each endpoint, which is cancelled as soon as it has
// opened the endpoint, or has failed to.

import { useEffect, useRef, useState } from "preact/hooks";
import type { Job } from "./api";
import { type Failure, follow, isFinal, pause, request, urlOf } from "./http";
import { markOf } from "./why";

type Document = Record<string, unknown>;

/** How long an answer may take. A node without a free slot answers when it has one. */
const patience = 60_000;

type Side = "source" | "target";

/** A replication of nothing from one endpoint of a document to itself. It writes no checkpoint, and creates nothing. Of a mirror it
 * lists the databases, of which none has such a name. */
function probe(doc: Document, side: Side): Document {
  const name = `connection-test-${Math.random().toString(36).slice(2)}`;
  const [end, proxy] = [doc[side], doc[`${side}_proxy`]];
  return {
    source: end,
    target: end,
    ...(proxy !== undefined && { source_proxy: proxy, target_proxy: proxy }),
    ...(doc.socket_options !== undefined && { socket_options: doc.socket_options }),
    ...(doc.mirror === undefined ? { doc_ids: [name], since_seq: "now" } : { mirror: { include: [name], prefix: "copy-" } }),
    continuous: true,
    use_checkpoints: false,
    retries_per_request: 0,
    connection_timeout: 15_000,
  };
}

interface Outcome {
  good: boolean;
  text: string;
}

/** The reasons of jobs that have opened both. */
const working = ["no_changes", "idle", "copying", "reading_changes", "filtering", "finishing"];

/** What a job says of an endpoint, or nothing yet. */
function outcomeOf({ condition, info }: Job, doc: Document, side: Side): Outcome | undefined {
  const { fault, reason } = condition;
  if (fault && (doc.mirror !== undefined || markOf(condition, "failing") || condition.state === "failed")) {
    const later = side === "target" && doc.create_target === true && fault.code === "database_missing";
    return later
      ? { good: true, text: "The target does not exist yet: the first run creates it." }
      : { good: false, text: `The ${side}: ${fault.message.replace(/^(source|target) /, "")}.` };
  }
  const opened = doc.mirror === undefined ? working.includes(reason) : info?.mirror?.target_look !== undefined;
  return opened ? { good: true, text: `The ${side} can be opened with this login.` } : undefined;
}

/** Cancels a probe. It is false if the node has to be asked again. */
async function cancelled(body: Document): Promise<boolean> {
  const init = { method: "POST", body: JSON.stringify({ ...body, cancel: true }), headers: { "Content-Type": "application/json" }, keepalive: true };
  const status = await fetch(urlOf("_replicate"), init).then((answer) => answer.status, () => 0);
  return isFinal(status); // 404: there is no such job any more
}

const cancelAgainAfter = 5000;

/** Cancels a probe again until the node has answered, also while another page is shown: the job would last for ever. */
async function keepCancelling(body: Document): Promise<void> {
  do await pause(cancelAgainAfter, new AbortController().signal);
  while (!(await cancelled(body)));
}

/** Tests an endpoint with a job. */
async function tryOut(doc: Document, side: Side, ended: AbortSignal): Promise<Outcome> {
  const body = probe(doc, side);
  const cancel = () => void cancelled(body);
  addEventListener("pagehide", cancel);
  const stop = new AbortController();
  const end = () => stop.abort();
  ended.addEventListener("abort", end);
  let outcome: Outcome = { good: false, text: `The ${side}: there was no answer within ${patience / 1000} seconds: all slots may be used.` };
  const take = ({ data }: { data?: Job }) => {
    const known = data && outcomeOf(data, doc, side);
    if (known) {
      outcome = known;
      end();
    }
  };
  try {
    const { _local_id } = await request<{ _local_id: string }>("POST", "_replicate", body);
    void follow<Job>(`_scheduler/jobs/${encodeURIComponent(_local_id)}`, take, stop.signal);
    await pause(patience, stop.signal);
  } finally {
    end();
    ended.removeEventListener("abort", end);
    removeEventListener("pagehide", cancel);
    if (!(await cancelled(body))) void keepCancelling(body); // also a job whose answer was lost
  }
  return outcome;
}

/** A button that tests whether source and target of a document can be opened, and what has come of it. */
export function TestConnection({ doc, disabled }: { doc: Document; disabled: boolean }) {
  const [outcomes, setOutcomes] = useState<{ of: string; ends: Outcome[] }>();
  const [busy, setBusy] = useState(false);
  const ended = useRef(new AbortController());
  useEffect(() => () => ended.current.abort(), []);
  const endpoints = JSON.stringify([doc.source, doc.target, doc.source_proxy, doc.target_proxy, doc.create_target, doc.mirror !== undefined]);
  const run = async () => {
    setBusy(true);
    const test = (side: Side) =>
      tryOut(doc, side, ended.current.signal).catch((error) => ({ good: false, text: `The ${side}: ${(error as Failure).reason}` }));
    setOutcomes({ of: endpoints, ends: await Promise.all([test("source"), test("target")]) });
    setBusy(false);
  };
  return (
    <>
      <div class="buttons">
        <button type="button" disabled={busy || disabled} onClick={() => void run()}>
          Test connection
        </button>
        {busy && <span class="muted">A node opens source and target…</span>}
      </div>
      <div role="status" class="connection">
        {outcomes?.of === endpoints && !busy && outcomes.ends.map(({ good, text }) => <p class={good ? "good" : "trouble"}>{text}</p>)}
      </div>
    </>
  );
}
