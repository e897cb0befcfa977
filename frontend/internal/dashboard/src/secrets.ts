// Credentials of a replication document, which pages do not show.

export const masked = "*****";

type Json = unknown;

const secretKeys = /^(authorization|proxy-authorization|cookie|x-auth-couchdb-token|password|secret|token)$/i;

// A URL with a password, which lasts up to the last @ in front of the host.
const login = /^([a-z][a-z0-9+.-]*:\/\/[^/?#@:]*):([^/?#]*)@/i;

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
