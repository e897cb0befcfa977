// How numbers, times and endpoints are written.

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

export function count(n: number | null | undefined): string {
  return n === null || n === undefined ? "unknown" : whole.format(n);
}

/** A number of things. */
export function some(n: number | null | undefined, thing: string): string {
  return `${count(n)} ${thing}${n === 1 ? "" : "s"}`;
}

/** A rate, with as many digits as are of use. */
export function rate(n: number): string {
  return n >= 100 ? whole.format(n) : n.toFixed(n >= 10 ? 1 : 2).replace(/\.?0+$/, "") || "0";
}

/** A number of bytes. */
export function bytes(n: number): string {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (n >= 1000 && unit < units.length - 1) {
    n /= 1000;
    unit++;
  }
  return `${n >= 100 || unit === 0 ? n.toFixed(0) : n.toFixed(1)} ${units[unit]}`;
}

/** A duration in its two largest units. */
export function duration(seconds: number): string {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86_400)} d ${Math.floor((s % 86_400) / 3600)} h`;
}

/** A time as the reader's clock shows it. */
export function clock(time: string): string {
  const date = new Date(time);
  return Number.isNaN(date.getTime())
    ? time
    : date.toLocaleString("sv-SE", { dateStyle: "short", timeStyle: "medium" });
}

/** An endpoint without its scheme and its login, for lists. */
export function endpoint(url: string): string {
  return url.replace(/^https?:\/\/(?:[^/@]*@)?/, "").replace(/\/$/, "");
}

/** The URL of an endpoint of a replication document. */
export function endpointURL(value: unknown): string {
  if (typeof value === "string") return value;
  if (value && typeof value === "object" && "url" in value) return String(value.url);
  return "";
}
