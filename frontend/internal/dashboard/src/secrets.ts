// Credentials of a replication document, which pages do not show.

export const masked = "*****";

type Json = unknown;

const secretKeys = /^(authorization|proxy-authorization|cookie|x-auth-couchdb-token|password|secret|token)$/i;

// A URL with a password, which lasts up to the last @ in front of the host.
const login = /^([a-z][a-z0-9+.-]*:\/\/[^/?#@:]*):([^/?#]*)@/i;

const decoded = (text: string) => {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // the node takes it as it is written, too
  }
};

/** Returns an endpoint with the login of its URL, if it has one, in auth. */
function separateLogin(endpoint: Json): Json {
  const object = (endpoint && typeof endpoint === "object" ? endpoint : { url: endpoint }) as Record<string, Json>;
  const found = typeof object.url === "string" && object.auth === undefined ? login.exec(object.url) : null;
  if (!found) return endpoint;
  const [written, start = "", password = ""] = found;
  const scheme = start.slice(0, start.indexOf("://") + 3);
  const basic = { username: decoded(start.slice(scheme.length)), password: decoded(password) };
  return { ...object, url: scheme + (object.url as string).slice(written.length), auth: { basic } };
}

/** Returns an endpoint that logs in with a user and a password, and in no other way. */
export function setLogin(endpoint: Json, basic: { username: string; password: string }): Json {
  const { auth: _, headers, ...object } = (endpoint && typeof endpoint === "object" ? endpoint : { url: endpoint }) as Record<string, Json>;
  const others = Object.entries((headers ?? {}) as Record<string, Json>).filter(([name]) => name.toLowerCase() !== "authorization");
  const url = String(object.url ?? "").replace(/^([a-z][a-z0-9+.-]*:\/\/)[^/?#]*@/i, "$1");
  return { ...object, url, ...(others.length > 0 && { headers: Object.fromEntries(others) }), auth: { basic } };
}

/** Returns a copy of a document whose endpoints have no login in their URLs: the form has fields for it. */
export function separateLogins(doc: Record<string, Json>): Record<string, Json> {
  return { ...doc, ...("source" in doc && { source: separateLogin(doc.source) }), ...("target" in doc && { target: separateLogin(doc.target) }) };
}

/** Returns an edited document in which endpoints that were not edited are written as in the original. */
export function rejoinLogins(edited: Record<string, Json>, original: Record<string, Json>): Record<string, Json> {
  const joined = { ...edited };
  for (const side of ["source", "target"]) {
    if (side in edited && JSON.stringify(edited[side]) === JSON.stringify(separateLogin(original[side]))) joined[side] = original[side];
  }
  return joined;
}

/** Returns a copy of a document without credentials. */
export function mask(value: Json, key = ""): Json {
  if (typeof value === "string") return secretKeys.test(key) ? masked : value.replace(login, `$1:${masked}@`);
  if (Array.isArray(value)) return value.map((element) => mask(element));
  if (value && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, mask(member, name)]));
  }
  return value;
}

/** Returns a copy of an edited document, with the credentials of the original where the edit left them masked. Missing
 * gets the names of the fields that are masked although the original has no credentials there. */
export function unmask(edited: Json, original: Json, missing: string[], name = ""): Json {
  if (typeof edited === "string") {
    const before = typeof original === "string" ? original : "";
    const secret = secretKeys.test(name.slice(name.lastIndexOf(".") + 1));
    if (secret ? edited !== masked : login.exec(edited)?.[2] !== masked) return edited;
    if (secret && typeof original === "string") return before;
    const password = login.exec(before)?.[2];
    if (!secret && password !== undefined) return edited.replace(login, (_, start: string) => `${start}:${password}@`);
    missing.push(name);
    return edited;
  }
  if (Array.isArray(edited)) {
    return edited.map((element, i) => unmask(element, Array.isArray(original) ? original[i] : undefined, missing, `${name}.${i}`));
  }
  if (edited && typeof edited === "object") {
    const before = (original && typeof original === "object" ? original : {}) as Record<string, Json>;
    return Object.fromEntries(
      Object.entries(edited).map(([key, member]) => [key, unmask(member, before[key], missing, name ? `${name}.${key}` : key)]),
    );
  }
  return edited;
}
