// Who has changed what: the latest changes by users.

import { useView, withQuery } from "./http";
import { Panel, Since, Table, Trouble } from "./parts";

/** A change by a user, as the node tells it. Only the members that it has to do with are set. */
interface Change {
  at: string;
  user: string;
  action: string;
  database?: string;
  doc_id?: string;
  section?: string;
  key?: string;
  old?: string;
  new?: string;
  node?: string;
}

/** What actions are called. */
const actions: Record<string, string> = {
  edit: "edited the document",
  pause: "paused it",
  resume: "resumed it",
  delete: "deleted it",
  run: "ran it at once",
  set: "set",
  unset: "took back",
  cordon: "cordoned",
  drain: "drained",
  uncordon: "uncordoned",
};

const shown = 20;

/** The latest changes by users, of a job, of settings or of nodes, if there are any. */
export function Changes({ job, of }: { job?: string; of?: "settings" | "nodes" }) {
  const view = useView<{ changes: Change[] }>(withQuery("_scheduler/audit", { job_id: job, of, limit: shown }));
  const changes = view.data?.changes ?? [];
  if (changes.length === 0) return <Trouble failure={view.failure} />;
  return (
    <Panel title="Latest changes by users">
      <Table
        head={["When", "User", "Change", ...(of === "settings" ? ["Setting", "From", "To"] : of === "nodes" ? ["Node"] : [])]}
        rows={changes.map((change, i) => ({
          key: `${change.at} ${i}`,
          cells: [
            <Since time={change.at} />,
            change.user,
            actions[change.action] ?? change.action,
            ...(of === "settings"
              ? [`[${change.section}] ${change.key}`, <Value text={change.old} />, <Value text={change.new} />]
              : of === "nodes"
                ? [change.node]
                : []),
          ],
        }))}
      />
    </Panel>
  );
}

function Value({ text }: { text?: string }) {
  return text ? <code class="whole">{text}</code> : <span class="muted">not set</span>;
}
