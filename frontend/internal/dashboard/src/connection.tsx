// A test of the connections of a replication that is not saved yet. A frontend opens no connection to the outside, so a
// node that replicates makes it: with a replication of no documents, which is cancelled as soon as it has opened both
// endpoints, or has failed to.

import { useEffect, useRef, useState } from "preact/hooks";
import type { Job } from "./api";
import { type Failure, follow, pause, request, urlOf } from "./http";
import { markOf } from "./why";

type Document = Record<string, unknown>;

/** How long an answer may take. A node without a free slot answers when it has one. */
const patience = 60_000;

/** The replication of no documents with the endpoints of a document. It writes no checkpoint, and creates nothing. */
function probe(doc: Document): Document {
  const kept = ["source", "target", "source_proxy", "target_proxy", "socket_options"];
  return {
    ...Object.fromEntries(Object.entries(doc).filter(([name]) => kept.includes(name))),
    continuous: true,
    doc_ids: [`connection-test-${Math.random().toString(36).slice(2)}`],
    since_seq: "now",
    use_checkpoints: false,
    retries_per_request: 0,
    connection_timeout: 15_000,
  };
}

const opened = "Source and target can be opened with these logins.";
const createdLater = "The source can be opened. The target does not exist yet: the first run creates it.";

interface Outcome {
  good: boolean;
  text: string;
}

/** The reasons of jobs that have opened both. */
const working = ["no_changes", "idle", "copying", "reading_changes", "filtering", "finishing"];

/** What a job says of its endpoints, or nothing yet. */
function outcomeOf({ condition }: Job, doc: Document): Outcome | undefined {
  const { fault, reason } = condition;
  if (fault && (markOf(condition, "failing") || condition.state === "failed")) {
    const missing = doc.create_target === true && fault.code === "database_missing" && fault.side === "target";
    return missing ? { good: true, text: createdLater } : { good: false, text: fault.text };
  }
  return working.includes(reason) ? { good: true, text: opened } : undefined;
}

/** Tests the endpoints with a job. */
async function tryOut(doc: Document, ended: AbortSignal): Promise<Outcome> {
  const { _local_id } = await request<{ _local_id: string }>("POST", "_replicate", probe(doc));
  const cancellation = JSON.stringify({ replication_id: _local_id, cancel: true });
  const cancel = () =>
    fetch(urlOf("_replicate"), { method: "POST", body: cancellation, headers: { "Content-Type": "application/json" }, keepalive: true }).catch(() => undefined);
  addEventListener("pagehide", cancel);
  const stop = new AbortController();
  const end = () => stop.abort();
  ended.addEventListener("abort", end);
  let outcome: Outcome = { good: false, text: `There was no answer within ${patience / 1000} seconds: all slots may be used.` };
  const take = ({ data }: { data?: Job }) => {
    const known = data && outcomeOf(data, doc);
    if (known) {
      outcome = known;
      end();
    }
  };
  try {
    void follow<Job>(`_scheduler/jobs/${encodeURIComponent(_local_id)}`, take, stop.signal);
    await pause(patience, stop.signal);
  } finally {
    end();
    ended.removeEventListener("abort", end);
    removeEventListener("pagehide", cancel);
    await cancel();
  }
  return outcome;
}

/** A button that tests whether source and target of a document can be opened, and what has come of it. */
export function TestConnection({ doc, disabled }: { doc: Document; disabled: boolean }) {
  const [outcome, setOutcome] = useState<Outcome & { of: string }>();
  const [busy, setBusy] = useState(false);
  const ended = useRef(new AbortController());
  useEffect(() => () => ended.current.abort(), []);
  const endpoints = JSON.stringify([doc.source, doc.target, doc.source_proxy, doc.target_proxy, doc.create_target]);
  const run = async () => {
    setBusy(true);
    try {
      setOutcome({ ...(await tryOut(doc, ended.current.signal)), of: endpoints });
    } catch (error) {
      setOutcome({ good: false, text: (error as Failure).reason, of: endpoints });
    } finally {
      setBusy(false);
    }
  };
  return (
    <>
      <div class="buttons">
        <button type="button" disabled={busy || disabled} onClick={() => void run()}>
          Test connection
        </button>
        {busy && <span class="muted">A node opens source and target…</span>}
      </div>
      <div role="status" class="connection">{outcome && !busy && outcome.of === endpoints && <p class={outcome.good ? "good" : "trouble"}>{outcome.text}</p>}</div>
    </>
  );
}
