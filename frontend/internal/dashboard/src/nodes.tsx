// The nodes: what each is for, and what it carries.

import type { BudgetLimit, Node } from "./api";
import { Changes } from "./changes";
import { pathOf, request, useView } from "./http";
import { Action, For, Loaded, Page, Panel, Since, StateBadge, Table } from "./parts";
import { hrefOf } from "./route";
import { bytes, count, some } from "./text";

interface StoreNodes {
  nodes: Node[];
  /** Of the store, and the one that it can be raised to. */
  level?: number;
  next_level?: number;
}

/** What the next level of the store waits for. */
function Level({ nodes, level, next_level: next }: StoreNodes) {
  if (!next) return level ? <p>The store has level {level}, the highest one that this node knows.</p> : null;
  const behind = nodes.filter((node) => node.live && node.level < next).map((node) => `${node.name} (${node.version})`);
  return (
    <p>
      The store has level {level}.{" "}
      {behind.length > 0
        ? `It cannot have level ${next} yet, because these live nodes do not know it: ${behind.join(", ")}.`
        : `All live nodes know level ${next}: settee upgrade raises it, or they do so in time. After that the version before cannot come back.`}
    </p>
  );
}

/** What live nodes use of the budgets of servers. */
function Budgets({ nodes }: { nodes: Node[] }) {
  const servers = new Map<string, { jobs: number; limit: BudgetLimit; used: BudgetLimit }>();
  for (const { budgets } of nodes.filter((node) => node.live)) {
    for (const [server, { jobs, limit, used }] of Object.entries(budgets ?? {})) {
      const all = servers.get(server) ?? { jobs: 0, limit, used: {} };
      servers.set(server, {
        jobs: all.jobs + jobs,
        limit,
        used: {
          requests: (all.used.requests ?? 0) + (used.requests ?? 0),
          bytes: (all.used.bytes ?? 0) + (used.bytes ?? 0),
          connections: (all.used.connections ?? 0) + (used.connections ?? 0),
        },
      });
    }
  }
  if (servers.size === 0) return null;
  const of = (used: number | undefined, limit: number | undefined, text: (n: number) => string) =>
    limit ? `${text(used ?? 0)} of ${text(limit)}` : text(used ?? 0);
  return (
    <Panel title="Budgets of servers">
      <Table
        head={["Server", "Requests a second", "Bytes a second", "Connections", "Jobs that use it"]}
        rows={[...servers].sort(([a], [b]) => a.localeCompare(b)).map(([server, { jobs, limit, used }]) => ({
          key: server,
          header: 0,
          cells: [
            server,
            of(used.requests, limit.requests, count),
            of(used.bytes, limit.bytes, bytes),
            of(used.connections, limit.connections, count),
            count(jobs),
          ],
        }))}
      />
    </Panel>
  );
}

/** The state of a node: whether it is live, and takes jobs. */
export function NodeState({ node }: { node: Node }) {
  const { live, cordon } = node;
  const state = !live ? "gone" : !cordon ? "live" : cordon.drained ? "drained" : cordon.drain ? "draining" : "cordoned";
  return <StateBadge state={state} />;
}

/** Takes a node out of service, or back into it. */
function Service({ node, nodes }: { node: Node; nodes: Node[] }) {
  const { live, cordon, roles, name, instance, held } = node;
  if (!live || !roles.includes("replication")) return null;
  const path = `_scheduler/nodes/${pathOf(instance)}`;
  const hasOther = nodes.some((other) => other.instance !== instance && other.live && !other.cordon && other.roles.includes("replication"));
  return (
    <div class="buttons">
      {!cordon && (
        <Action
          run={() => request("POST", `${path}/_cordon`)}
          question={`Cordon ${name}`}
          confirm={`${name} takes no jobs, and keeps those that it runs, until it is uncordoned or started again.`}
          done={`${name}: takes no jobs`}
        >
          Cordon
        </Action>
      )}
      {!cordon?.drain && (
        <Action
          run={() => request("POST", `${path}/_drain`)}
          question={`Drain ${name}`}
          confirm={`${name} takes no jobs until it is uncordoned or started again. ${held > 0 ? `Its ${some(held, "job")} write a checkpoint and ${hasOther ? "go to other nodes" : "wait: no other node takes jobs"}.` : ""}`}
          done={`${name}: gives back its jobs`}
        >
          Drain
        </Action>
      )}
      {cordon && (
        <Action run={() => request("DELETE", `${path}/_cordon`)} done={`${name}: takes jobs again`}>
          Uncordon
        </Action>
      )}
    </div>
  );
}

export function NodesPage() {
  const view = useView<StoreNodes>("_scheduler/nodes");
  return (
    <Page title="Nodes">
      <Loaded view={view}>
        {(store) => (
          <>
            <Level {...store} />
            <Table
              head={["State", "Node", "Roles", "Jobs", "Memory", "Store", "Version and level", "Started", "Last seen", "Service"]}
              rows={store.nodes.map((node) => ({
                key: node.instance,
                header: 1,
                cells: [
                  <NodeState node={node} />,
                  node.name,
                  node.roles.join(", "),
                  node.roles.includes("replication") ? (
                    // What ends counts only where somebody waits for it.
                    `${count(node.cordon ? node.held : node.running)} of ${count(node.max_jobs)}`
                  ) : (
                    "none"
                  ),
                  node.memory ? bytes(node.memory) : "unknown",
                  node.store,
                  `${node.version}, ${node.level}`,
                  <Since time={node.started} />,
                  node.live ? "now" : <Since time={node.last_seen} />,
                  <>
                    <Service node={node} nodes={store.nodes} />
                    {node.cordon && (
                      <small class="muted">
                        {node.cordon.drain ? "drained" : "cordoned"} by {node.cordon.by} <For since={node.cordon.at} />
                      </small>
                    )}
                  </>,
                ],
              }))}
            />
            <Budgets nodes={store.nodes} />
            <Changes of="nodes" />
            <p class="muted">
              A cordoned node takes no jobs, and a drained one also gives back those that it has. Both hold until the node is uncordoned or
              started again. A node that is stopped gives back its jobs, too, and answers requests for{" "}
              <a href={hrefOf(["configuration"], { q: "drain_sec" })}>drain_sec</a> more. With the role api_frontend alone it takes no jobs.
            </p>
          </>
        )}
      </Loaded>
    </Page>
  );
}
