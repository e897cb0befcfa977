// The nodes: what each is for, and what it carries.

import type { Node } from "./api";
import { useView } from "./http";
import { Loaded, Page, Since, StateBadge } from "./parts";
import { hrefOf } from "./route";
import { count } from "./text";

export function NodesPage() {
  const view = useView<{ nodes: Node[] }>("_scheduler/nodes");
  return (
    <Page title="Nodes">
      <Loaded view={view}>
        {({ nodes }) => (
          <table>
            <thead>
              <tr>
                <th scope="col">State</th>
                <th scope="col">Node</th>
                <th scope="col">Roles</th>
                <th scope="col">Jobs</th>
                <th scope="col">Version</th>
                <th scope="col">Started</th>
                <th scope="col">Last seen</th>
              </tr>
            </thead>
            <tbody>
              {nodes.map((node) => (
                <tr key={node.instance}>
                  <td>
                    <StateBadge state={node.live ? "live" : "gone"} />
                  </td>
                  <th scope="row">{node.name}</th>
                  <td>{node.roles.join(", ")}</td>
                  <td>
                    {node.roles.includes("replication") ? (
                      <a href={hrefOf(["jobs"], { states: "running" })}>
                        {count(node.running)} of {count(node.max_jobs)}
                      </a>
                    ) : (
                      "none"
                    )}
                  </td>
                  <td>{node.version}</td>
                  <td>
                    <Since time={node.started} />
                  </td>
                  <td>{node.live ? "now" : <Since time={node.last_seen} />}</td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
      </Loaded>
    </Page>
  );
}
