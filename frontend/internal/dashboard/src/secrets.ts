// Credentials of a replication document, which pages do not show.

export const masked = "*****";

type Json = unknown;

const secretKeys = /^(authorization|proxy-authorization|cookie|x-auth-couchdb-token|password|secret|token)$/i;

function maskText(text: string): string {
  return text.replace(/^([a-z][a-z0-9+.-]*:\/\/[^/@:]*):[^/@]*@/i, `$1:${masked}@`);
}

/** Returns a copy of a document without credentials. */
export function mask(value: Json, key = ""): Json {
  if (typeof value === "string") return secretKeys.test(key) ? masked : maskText(value);
  if (Array.isArray(value)) return value.map((element) => mask(element));
  if (value && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, mask(member, name)]));
  }
  return value;
}

/** Returns a copy of an edited document, with the credentials of the original where the edit left them masked. */
export function unmask(edited: Json, original: Json): Json {
  if (typeof edited === "string") {
    if (typeof original !== "string" || !edited.includes(masked)) return edited;
    if (edited === masked) return original;
    const password = /^[a-z][a-z0-9+.-]*:\/\/[^/@:]*:([^/@]*)@/i.exec(original)?.[1];
    return password === undefined ? edited : edited.replace(masked, () => password);
  }
  if (Array.isArray(edited)) return edited.map((element, i) => unmask(element, Array.isArray(original) ? original[i] : undefined));
  if (edited && typeof edited === "object") {
    const before = (original && typeof original === "object" ? original : {}) as Record<string, Json>;
    return Object.fromEntries(Object.entries(edited).map(([name, member]) => [name, unmask(member, before[name])]));
  }
  return edited;
}
