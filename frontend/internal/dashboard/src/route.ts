// The address of a page is the fragment of the URL: #/jobs?condition=crashing. It has all that decides what the page
// shows, so it can be kept and sent to others. The server sees no fragment.

import { useEffect, useState } from "preact/hooks";
import { pathOf, withQuery } from "./http";

export interface Route {
  /** The decoded segments of the path. */
  path: string[];
  query: URLSearchParams;
}

function decode(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

export function parseRoute(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  return { path: path.split("/").filter(Boolean).map(decode), query: new URLSearchParams(query) };
}

/** The address of a page. Parameters that are undefined are left out. */
export function hrefOf(path: string[], query: Record<string, string | undefined> = {}): string {
  return `#/${withQuery(pathOf(...path), query)}`;
}

export function go(href: string, replace = false): void {
  if (replace) location.replace(href);
  else location.hash = href;
}

/** Acts, and then goes to a page, unless the user has gone to another one meanwhile. */
export async function goAfter(act: () => Promise<void>, href: string): Promise<void> {
  const { hash } = location;
  await act();
  if (location.hash === hash) go(href);
}

export function useRoute(): Route {
  const [route, setRoute] = useState(() => parseRoute(location.hash));
  useEffect(() => {
    const changed = () => setRoute(parseRoute(location.hash));
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}
