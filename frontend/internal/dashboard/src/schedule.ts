// When a periodic replication runs, in words.

const days = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const months = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];

/** The names of the values of a field, "" for all of them. Undefined for what there are no words for. */
function names(field: string, name: (value: string) => string | undefined): string | undefined {
  if (field === "*") return "";
  const parts: string[] = [];
  for (const part of field.split(",")) {
    const [from = "", to, ...rest] = part.split("-");
    const [first, last] = [name(from), to === undefined ? undefined : name(to)];
    if (first === undefined || rest.length > 0 || (to !== undefined && last === undefined)) return undefined;
    parts.push(last === undefined ? first : `${first} to ${last}`);
  }
  return parts.length < 2 ? parts[0] : `${parts.slice(0, -1).join(", ")} and ${parts.at(-1)}`;
}

const number = (value: string) => (/^\d+$/.test(value) ? String(Number(value)) : undefined);
const nameIn = (list: string[], first: number) => (value: string) =>
  /^\d+$/.test(value) ? list[Number(value) - first] : list.find((name) => value.length === 3 && name.toLowerCase().startsWith(value.toLowerCase()));
const step = (field: string) => /^\*\/(\d+)$/.exec(field)?.[1];

function timesOf(minute: string, hour: string): string | undefined {
  const [everyMinutes, everyHours] = [step(minute), step(hour)];
  if (minute === "*" && hour === "*") return "every minute";
  if (everyMinutes && hour === "*") return `every ${everyMinutes} minutes`;
  if (!/^\d+$/.test(minute)) return undefined;
  const at = Number(minute) === 0 ? "on the hour" : `${Number(minute)} minutes past the hour`;
  if (hour === "*") return `every hour, ${at}`;
  if (everyHours) return `every ${everyHours} hours, ${at}`;
  const clock = (value: string) => (/^\d+$/.test(value) ? `${value.padStart(2, "0")}:${minute.padStart(2, "0")}` : undefined);
  const range = /^\d+-\d+$/.test(hour);
  const hours = names(hour, clock);
  return hours && (range ? `every hour from ${hours}` : `at ${hours}`);
}

/** A schedule of cron in words, or nothing if there are none for it. */
export function scheduleInWords(schedule: string, timezone = "UTC"): string | undefined {
  const [minute = "", hour = "", day = "", month = "", weekday = "", ...rest] = schedule.trim().split(/\s+/);
  if (rest.length > 0 || weekday === "") return undefined;
  const times = timesOf(minute, hour);
  const onDays = names(day, number);
  const inMonths = names(month, nameIn(months, 1));
  const onWeekdays = names(weekday, nameIn(days, 0));
  if (times === undefined || onDays === undefined || inMonths === undefined || onWeekdays === undefined) return undefined;
  const daily = times.startsWith("at") ? "every day" : "";
  const monthDay = onDays && `on day ${onDays} of ${inMonths ? "" : "each month"}`.trim();
  const when = [monthDay, onWeekdays && `on ${onWeekdays}`].filter(Boolean).join(" or ") || daily;
  return [times, when, inMonths && (onDays ? inMonths : `in ${inMonths}`)].filter(Boolean).join(" ") + (/:|hours/.test(times) ? ` (${timezone || "UTC"})` : "");
}

/** A time between runs, such as 1h30m, in words, or nothing if it is none. */
export function everyInWords(every: string): string | undefined {
  const parts = /^(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?$/.exec(every.trim());
  if (!parts || parts.slice(1).every((part) => part === undefined)) return undefined;
  const units = ["hour", "minute", "second"];
  const words = parts.slice(1).flatMap((n, i) => (n && Number(n) > 0 ? [`${Number(n)} ${units[i]}${Number(n) === 1 ? "" : "s"}`] : []));
  return words.length > 0 ? `every ${words.join(" ").replace(/^1 (hour|minute|second)$/, "$1")}` : undefined;
}
