// The nodes: what each is for, and what it carries.

import type { Node } from "./api";
import { useView } from "./http";
import { Loaded, Page, Since, StateBadge, Table } from "./parts";
import { count } from "./text";

export function NodesPage() {
  const view = useView<{ nodes: Node[] }>("_scheduler/nodes");
  return (
    <Page title="Nodes">
      <Loaded view={view}>
        {({ nodes }) => (
          <Table
            head={["State", "Node", "Roles", "Jobs", "Version", "Started", "Last seen"]}
            rows={nodes.map((node) => ({
              key: node.instance,
              header: 1,
              cells: [
                <StateBadge state={node.live ? "live" : "gone"} />,
                node.name,
                node.roles.join(", "),
                node.roles.includes("replication") ? (
                  `${count(node.running)} of ${count(node.max_jobs)}`
                ) : (
                  "none"
                ),
                node.version,
                <Since time={node.started} />,
                node.live ? "now" : <Since time={node.last_seen} />,
              ],
            }))}
          />
        )}
      </Loaded>
    </Page>
  );
}
