// Replicator databases and the users of transient jobs: what they have, and what they may have.

import { useEffect, useState } from "preact/hooks";
import type { Share } from "./api";
import { pathOf, request, useView, withQuery } from "./http";
import { Action, Dialog, Field, For, Loaded, Page, Panel, Table } from "./parts";
import { hrefOf } from "./route";
import { statesByNeed } from "./state";
import { count } from "./text";

const setting = (database: string) => `_node/_local/_config/${pathOf("replicator.shares", database)}`;

type ShareState = "running" | "pending" | "scheduled" | "parked" | "paused" | "crashing";

/** The shares of a database that is not listed with others. */
const usualShares = 100;

/** Names of databases in one answer. */
const namesAtOnce = 1000;

const isReplicator = (name: string) => name === "_replicator" || name.endsWith("/_replicator");

/** The names of all replicator databases. The first answer is kept up to date; later ones are read when it changes. */
function useReplicatorDatabases(): string[] {
  const first = useView<string[]>(`_all_dbs?limit=${namesAtOnce}`).data;
  const [later, setLater] = useState<string[]>([]);
  useEffect(() => {
    let shown = true;
    const readOn = async () => {
      const found: string[] = [];
      let page = first ?? [];
      while (shown && page.length >= namesAtOnce) {
        const last = page[page.length - 1];
        const next = await request<string[]>("GET", withQuery("_all_dbs", { limit: namesAtOnce + 1, start_key: JSON.stringify(last) }));
        page = next.filter((name) => name !== last);
        found.push(...page.filter(isReplicator));
      }
      if (shown) setLater(found);
    };
    readOn().catch(() => undefined); // the names that are known stay
    return () => {
      shown = false;
    };
  }, [first]);
  return [...(first ?? []).filter(isReplicator), ...later];
}

export function DatabasesPage() {
  const view = useView<{ shares: Share[] }>("_scheduler/shares");
  const names = useReplicatorDatabases();
  return (
    <Page title="Replicator databases" actions={<NewDatabase />}>
      <Loaded view={view}>
        {({ shares }) => (
          <>
            <Panel title="Their shares and jobs">
              <ShareTable shares={withEmpty(shares, names)} />
              <p class="muted">
                Shares say how the nodes' time is divided among databases and users that want all of it: one with twice the shares gets twice the time. {usualShares} is
                usual, and 0 pauses a database. Its fair share follows from that and from what the others want; a database may use more while nobody else wants it.
              </p>
            </Panel>
            {shares.some((share) => share.database === null) && (
              <Panel title="Users of _replicate">
                <ShareTable shares={shares.filter((share) => share.database === null)} />
              </Panel>
            )}
          </>
        )}
      </Loaded>
    </Page>
  );
}

/** The replicator databases: those that have jobs, and those that have none. */
function withEmpty(shares: Share[], names: string[]): Share[] {
  const listed = shares.filter((share) => share.database !== null);
  const known = new Set(listed.map((share) => share.database));
  const empty = names.filter((name) => !known.has(name));
  const nothing = { user: null, usage: 0, running: 0, pending: 0, scheduled: 0, parked: 0, paused: 0, crashing: 0, ran: 0, entitled: 0 };
  return [...listed, ...empty.map((database) => ({ ...nothing, database, shares: usualShares }))];
}

function ShareTable({ shares }: { shares: Share[] }) {
  if (shares.length === 0) return <p class="muted">There are none.</p>;
  const ofUsers = shares.every((share) => share.database === null);
  return (
    <Table
      head={["Name", "Shares", "Jobs", "Used in the last hour", "Fair share", ...(ofUsers ? [] : ["Actions"])]}
      rows={shares.map((share) => ({
        key: share.database ?? `user ${share.user}`,
        header: 0,
        cells: [
          <a href={hrefOf(["jobs"], ownerOf(share))}>{share.database ?? share.user ?? "the anonymous user"}</a>,
          share.database === null ? share.shares : <Shares database={share.database} share={share} />,
          <States share={share} />,
          `${(share.ran * 100).toFixed(1)} %`,
          `${(share.entitled * 100).toFixed(1)} %`,
          ...(share.database === null ? [] : [<Delete database={share.database} />]),
        ],
      }))}
    />
  );
}

/** The filter of a list with the jobs of a database or user. */
const ownerOf = ({ database, user }: Share) => (database === null ? { user: user ?? "" } : { database });

/** How many jobs there are in each state that has some, with those of mirrors. */
function States({ share }: { share: Share }) {
  const states = statesByNeed.filter((state): state is ShareState => state in share && share[state as ShareState] > 0);
  if (states.length === 0) return <>none</>;
  return (
    <>
      {states.map((state, i) => (
        <>
          {i > 0 && ", "}
          <a href={hrefOf(["jobs"], { ...ownerOf(share), condition: state, mirrored: "true" })} class={state === "crashing" ? "bad" : undefined}>
            {count(share[state])} {state}
          </a>
        </>
      ))}
    </>
  );
}

function Shares({ database, share }: { database: string; share: Share }) {
  const [text, setText] = useState<string>();
  const changed = text !== undefined && text !== String(share.shares);
  return (
    <div class="inline">
      <form
        class="inline"
        onSubmit={(event) => {
          event.preventDefault();
          if (changed) event.currentTarget.querySelector("button")!.click();
        }}
      >
        <input
          type="number"
          min={0}
          max={1000}
          aria-label={`Shares of ${database}`}
          value={text ?? String(share.shares)}
          onInput={(event) => setText(event.currentTarget.value)}
        />
        {changed && (
          <Action
            done={`${database} has ${text} shares`}
            run={async () => {
              await request("PUT", setting(database), text);
              setText((now) => (now === text ? undefined : now)); // it may have been typed on
            }}
          >
            Set
          </Action>
        )}
      </form>
      {share.shares === 0 ? <Resume database={database} share={share} /> : (
        <Action done={`${database} is paused: its running jobs write a checkpoint and stop`} run={() => request("PUT", setting(database), "0")}>
          Pause
        </Action>
      )}
      {share.paused_since && (
        <small class="muted">
          paused <For since={share.paused_since} />
        </small>
      )}
    </div>
  );
}

/** A button that asks with how many shares a paused database goes on. */
function Resume({ database, share }: { database: string; share: Share }) {
  const [asking, setAsking] = useState(false);
  const [text, setText] = useState("");
  const before = share.shares_before;
  return (
    <>
      <button
        type="button"
        onClick={() => {
          setText(String(before ?? usualShares));
          setAsking(true);
        }}
      >
        Resume
      </button>
      {asking && (
        <Dialog title={`Resume ${database}`} action="Resume the database" done={`${database} is resumed with ${text} shares`} run={() => request("PUT", setting(database), text)} close={() => setAsking(false)}>
          <Field
            label="Shares"
            help={before ? `It had ${before} before it was paused.` : `What it had before it was paused is not known. ${usualShares} is usual.`}
          >
            {(id, described) => (
              <input
                id={id}
                type="number"
                min={1}
                max={1000}
                required
                aria-describedby={described}
                value={text}
                onInput={(event) => setText(event.currentTarget.value)}
              />
            )}
          </Field>
        </Dialog>
      )}
    </>
  );
}

function Delete({ database }: { database: string }) {
  const [asking, setAsking] = useState(false);
  const [typed, setTyped] = useState("");
  return (
    <>
      <button type="button" class="danger" onClick={() => setAsking(true)}>
        Delete
      </button>
      {asking && (
        <Dialog
          title={`Delete ${database}`}
          action="Delete the database"
          done={`${database} is deleted`}
          danger
          disabled={typed !== database}
          run={() => request("DELETE", pathOf(database))}
          close={() => setAsking(false)}
        >
          <p>All its documents are deleted, and their jobs end. This cannot be undone.</p>
          <Field label="Type its name">
            {(id) => <input id={id} autocomplete="off" value={typed} onInput={(event) => setTyped(event.currentTarget.value)} />}
          </Field>
        </Dialog>
      )}
    </>
  );
}

function NewDatabase() {
  const [asking, setAsking] = useState(false);
  const [name, setName] = useState("");
  const whole = name === "_replicator" || name.endsWith("/_replicator") ? name : `${name}/_replicator`;
  return (
    <>
      <button type="button" class="primary" onClick={() => setAsking(true)}>
        New database
      </button>
      {asking && (
        <Dialog title="New replicator database" action="Create" done={`${whole} is created`} disabled={!name} run={() => request("PUT", pathOf(whole))} close={() => setAsking(false)}>
          <Field label="Name" help="The name ends in /_replicator, such as team/_replicator.">
            {(id, described) => (
              <input id={id} aria-describedby={described} value={name} onInput={(event) => setName(event.currentTarget.value.trim())} />
            )}
          </Field>
        </Dialog>
      )}
    </>
  );
}
