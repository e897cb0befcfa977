// The page of a replication document: that of its job, or the document if it has none.

import type { Job, ReplicationDocument } from "./api";
import { deleteDocument, pathOf, useView } from "./http";
import { JobPage } from "./job";
import { Action, Endpoints, Loaded, Page, Panel, Since, StateBadge } from "./parts";
import { goAfter, hrefOf } from "./route";
import { mask } from "./secrets";
import { endpointURL } from "./text";

export function DocumentPage({ database, id, admin }: { database: string; id: string; admin: boolean }) {
  const job = useView<Job>(`_scheduler/docs/${pathOf(database, id)}`);
  if (job.data) return <JobPage key={job.data.job_id} id={job.data.job_id} admin={admin} />;
  if (job.failure?.status === 404) return <PlainDocument database={database} id={id} />;
  return (
    <Page title={`${database} / ${id}`}>
      <Loaded view={job}>{() => null}</Loaded>
    </Page>
  );
}

function PlainDocument({ database, id }: { database: string; id: string }) {
  const view = useView<ReplicationDocument>(pathOf(database, id));
  return (
    <Page
      title={`${database} / ${id}`}
      actions={
        <>
          <a class="button" href={hrefOf(["new"], { database, document: id })}>
            Edit
          </a>
          <Action danger run={() => goAfter(() => deleteDocument(database, id), hrefOf(["new"]))} done={`${id} is deleted`} question="Delete the replication" confirm={`The document ${id} is deleted, and its job ends. What was copied stays.`}>
            Delete
          </Action>
        </>
      }
    >
      <Loaded view={view}>
        {(doc) => (
          <>
            <Panel title="Now">
              <p>
                <StateBadge state={String(doc._replication_state ?? "pending")} />{" "}
                {doc._replication_state_time !== undefined && <Since time={String(doc._replication_state_time)} />}
              </p>
              <p>
                <Endpoints source={endpointURL(doc.source)} target={endpointURL(doc.target)} />
              </p>
              {doc._replication_state_reason !== undefined && <p class="trouble">{String(doc._replication_state_reason)}</p>}
            </Panel>
            <Panel title="The document">
              <pre tabIndex={0}>{JSON.stringify(mask(doc), null, 2)}</pre>
            </Panel>
          </>
        )}
      </Loaded>
    </Page>
  );
}
