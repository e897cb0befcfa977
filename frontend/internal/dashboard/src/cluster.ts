// What the cluster is called.

import { useEffect, useState } from "preact/hooks";
import { urlOf } from "./http";

/** The name that a setting gives to the cluster, or else the host: whoever has several clusters has several hosts. */
let name = location.host;
const listeners = new Set<(name: string) => void>();

/** Asks for the name. Who may not ask sees the host. */
export async function readClusterName(): Promise<void> {
  try {
    const answer = await fetch(urlOf(""), { headers: { Accept: "application/json" }, credentials: "same-origin" });
    if (!answer.ok) return;
    const { cluster_name } = (await answer.json()) as { cluster_name?: string };
    name = cluster_name || location.host;
    for (const listener of listeners) listener(name);
  } catch {
    // The node does not answer: other requests say so.
  }
}

/** What the cluster is called. */
export function useClusterName(): string {
  const [shown, setShown] = useState(name);
  useEffect(() => {
    listeners.add(setShown);
    setShown(name);
    return () => void listeners.delete(setShown);
  }, []);
  return shown;
}
