// Requests to the node, and answers that stay up to date.
//
// All paths are relative to the root of the node, which is the folder above the pages: a proxy may have put a prefix in front.

import { useEffect, useState } from "preact/hooks";

const root = new URL("../", document.baseURI);

/** A request that was answered with an error, or not at all (status 0). */
export class Failure extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    readonly reason: string,
  ) {
    super(reason);
  }
}

/** The path of segments that may have any characters. A request whose path has the segment . or .. fails. */
export function pathOf(...segments: string[]): string {
  return segments.map(encodeURIComponent).join("/");
}

/** A path with a query. Parameters that are undefined are left out. */
export function withQuery(path: string, query: Record<string, string | number | undefined>): string {
  const given = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined) given.set(name, String(value));
  }
  const text = given.toString();
  return text ? `${path}?${text}` : path;
}

export function urlOf(path: string): string {
  return new URL(path, root).href;
}

type Listener = () => void;
const signedOut = new Set<Listener>();

/** Calls a function when a request is answered with 401, because the session has ended. */
export function onSignedOut(listener: Listener): () => void {
  signedOut.add(listener);
  return () => signedOut.delete(listener);
}

/** Whether the node would answer the same request in the same way again. The status 0 is none. */
export const isFinal = (status: number) => status > 0 && status < 500 && ![401, 408, 429].includes(status);

const unreachable = () => new Failure(0, "unreachable", "This node does not answer.");

const isDots = (segment: string) => segment === "." || segment === "..";

async function send(path: string, init: RequestInit): Promise<Response> {
  // The browser would resolve it, and the request would act on something else.
  const dots = path.split("?", 1)[0]!.split("/").find(isDots);
  if (dots) throw new Failure(0, "unaddressable", `A browser cannot address what is named ${dots}.`);
  let answer: Response;
  try {
    answer = await fetch(urlOf(path), { cache: "no-store", credentials: "same-origin", ...init });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw unreachable();
  }
  if (answer.ok || answer.status === 304) return answer;
  const { error = "", reason = answer.statusText } = await answer.json().catch(() => ({}));
  if (answer.status === 401) for (const listener of signedOut) listener();
  throw new Failure(answer.status, String(error), String(reason));
}

/** Sends a request, and returns its answer. The body is sent as JSON. */
export async function request<T>(method: string, path: string, body?: unknown): Promise<T> {
  const init: RequestInit = { method };
  if (body !== undefined) {
    init.body = JSON.stringify(body);
    init.headers = { "Content-Type": "application/json" };
  }
  return (await send(path, init)).json();
}

/** Deletes the latest revision of a document. */
export async function deleteDocument(database: string, id: string): Promise<void> {
  const path = pathOf(database, id);
  const rev = isDots(id) ? await listedRev(database, id) : (await request<{ _rev?: string }>("GET", path))._rev;
  if (!rev) throw new Failure(404, "not_found", `There is no document ${id} in ${database}.`);
  if (isDots(id)) await request("POST", pathOf(database), { _id: id, _rev: rev, _deleted: true });
  else await request("DELETE", withQuery(path, { rev }));
}

/** The latest revision of a document in the list of all documents, nothing if there is none. */
async function listedRev(database: string, id: string): Promise<string | undefined> {
  const path = withQuery(pathOf(database, "_all_docs"), { key: JSON.stringify(id) });
  const { rows } = await request<{ rows: { value: { rev: string } }[] }>("GET", path);
  return rows[0]?.value.rev;
}

export interface View<T> {
  /** The latest answer. */
  data?: T;
  /** Why the latest request failed. The data is then older than that. */
  failure?: Failure;
}

const waitSeconds = 30;
const longestPause = 15_000;
/** After how long a node that has not answered counts as one that does not. */
const longestAnswer = (waitSeconds + 15) * 1000;

/** How many more views of the page may wait at the node. Over HTTP/1.1 a browser has six connections to a node, for all its tabs: the
 * others are for what people do. */
let places = overOneConnection() ? Infinity : 3;

/** Whether all requests share one connection, as in later versions of HTTP. */
function overOneConnection(): boolean {
  const [page] = performance.getEntriesByType("navigation") as PerformanceNavigationTiming[];
  return /^h[23]/.test(page?.nextHopProtocol ?? "");
}

/** Resolves after a time, or when the signal aborts. */
export function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const stop = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", stop);
      resolve();
    };
    const timer = setTimeout(stop, milliseconds);
    signal.addEventListener("abort", stop);
  });
}

/** Resolves when somebody can see the page. */
export function visible(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (document.visibilityState === "visible" || signal.aborted) return resolve();
    const stop = () => {
      if (document.visibilityState !== "visible" && !signal.aborted) return;
      document.removeEventListener("visibilitychange", stop);
      signal.removeEventListener("abort", stop);
      resolve();
    };
    document.addEventListener("visibilitychange", stop);
    signal.addEventListener("abort", stop);
  });
}

/** Calls read with a signal that also aborts when nobody can see the page, or when the answer takes too long. */
async function whileVisible<T>(signal: AbortSignal, read: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const ended = new AbortController();
  const stop = () => (signal.aborted || document.visibilityState !== "visible") && ended.abort();
  const silent = setTimeout(() => ended.abort(unreachable()), longestAnswer);
  document.addEventListener("visibilitychange", stop);
  signal.addEventListener("abort", stop);
  try {
    return await read(ended.signal);
  } finally {
    clearTimeout(silent);
    document.removeEventListener("visibilitychange", stop);
    signal.removeEventListener("abort", stop);
  }
}

/** Calls take with each new answer to a GET, until the signal aborts. The node answers when there is a new one. When
 * enough views wait, those that the page shows later ask every few seconds. While the page cannot be seen no request waits. */
export async function follow<T>(path: string, take: (view: View<T>) => void, signal: AbortSignal): Promise<void> {
  let tag = "";
  let failures = 0;
  let latest: T | undefined;
  let watched = false;
  let hasPlace = false;
  signal.addEventListener("abort", () => hasPlace && places++);
  while (!signal.aborted) {
    await visible(signal);
    if (signal.aborted) return;
    const headers: Record<string, string> = { Accept: "application/json" };
    if (tag) headers["If-None-Match"] = tag; // without it the answer comes at once
    if (!hasPlace && watched && places > 0) {
      places--;
      hasPlace = true;
    }
    // After a failure an answer at once tells that the node answers again.
    if (!tag || (hasPlace && failures === 0)) headers.Prefer = `wait=${waitSeconds}`;
    const began = performance.now();
    try {
      const answer = await whileVisible(signal, async (signal) => {
        const answer = await send(path, { headers, signal });
        if (answer.status !== 304) {
          latest = (await answer.json()) as T;
          tag = answer.headers.get("ETag") ?? "";
        }
        return answer;
      });
      if (signal.aborted) return;
      if (answer.status !== 304 || failures > 0) take({ data: latest });
      failures = 0;
      // What the node does not watch, and a node that is going away, answers at once.
      const waited = answer.headers.has("Preference-Applied");
      watched ||= waited;
      const least = waited ? 500 : 5000;
      await pause(Math.max(0, least - (performance.now() - began)), signal);
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof DOMException && error.name === "AbortError") continue; // the page was hidden
      const failure = error instanceof Failure ? error : new Failure(0, "unreadable", String(error));
      take({ data: latest, failure });
      await pause(Math.min(longestPause, 1000 * 2 ** failures++), signal);
    }
  }
}

/** The answer to a GET, kept up to date while the component is shown. No path: nothing is asked. */
export function useView<T>(path: string | undefined): View<T> {
  const [state, setState] = useState<{ path?: string; view: View<T> }>({ view: {} });
  useEffect(() => {
    if (path === undefined) return;
    const ended = new AbortController();
    void follow<T>(path, (view) => setState({ path, view }), ended.signal);
    return () => ended.abort();
  }, [path]);
  return state.path === path ? state.view : {}; // never the answer of another path
}
