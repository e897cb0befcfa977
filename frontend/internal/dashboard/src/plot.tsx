// A plot of values over time.

import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { clock } from "./text";

export interface Series {
  label: string;
  values: (number | null)[];
  /** A custom property of the style sheet. */
  color: string;
}

const height = 150;
const wholeSteps = Array.from({ length: 15 }, (_, power) => [1, 2, 5].map((n) => n * 10 ** power)).flat();

/** The top of the axis, and the largest value if it is above: a peak that would flatten all others is cut off. */
function topOf(values: (number | null)[], least: number): { top: number; peak?: number } {
  const sorted = values.filter((n): n is number => n !== null && n > 0).sort((a, b) => a - b);
  const most = sorted.at(-1) ?? 0;
  const usual = sorted[Math.floor(sorted.length * 0.9)] ?? 0;
  if (sorted.length < 20 || most < 5 * usual || 2 * usual < least) return { top: Math.max(most * 1.1, least) };
  return { top: 2 * usual, peak: most };
}

interface Shape {
  /** The least value at the top of the axis, so that its labels differ. */
  least: number;
  format: (n: number) => string;
  /** Whether values between whole numbers have labels. */
  fractions?: boolean;
}

/** Draws series over times (seconds since the epoch), as lines or as bars. Below is what the series are, and
 * their values: the latest ones, or those under the pointer. The text says the same for those who cannot see it. */
export function Plot({ times, series, text, bars, format, least, fractions }: { times: number[]; series: Series[]; text: string; bars?: boolean } & Shape) {
  const data: uPlot.AlignedData = [times, ...series.map((s) => s.values)];
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>(undefined);
  const [pointed, setPointed] = useState<number>();
  const shape = series.map((s) => s.label + s.color).join();
  useEffect(() => {
    const element = place.current!;
    const style = getComputedStyle(element);
    const color = (name: string) => style.getPropertyValue(name).trim() || style.color;
    const axis = { stroke: () => color("--muted"), font: "12px system-ui, sans-serif", grid: { stroke: () => color("--line"), width: 1 }, ticks: { show: false } };
    plot.current = new uPlot(
      {
        width: element.clientWidth || 300,
        height,
        cursor: { drag: { x: false, y: false } },
        legend: { show: false },
        hooks: { setCursor: [(u) => setPointed(u.cursor.idx ?? undefined)] },
        scales: { x: bars ? { range: (_, min, max) => widened(min, max) } : {}, y: { range: (u) => [0, topOf(u.data.slice(1).flatMap((values) => [...values]) as (number | null)[], least).top] } },
        axes: [
          { ...axis, size: 30, space: 80, values: (_, splits, __, ___, step) => splits.map((at) => timeOf(at, step)) },
          { ...axis, size: 70, incrs: fractions ? undefined : wholeSteps, values: (_, splits) => splits.map(format) },
        ],
        series: [
          {},
          ...series.map((s) => ({
            label: s.label,
            stroke: () => color(s.color),
            fill: bars ? () => color(s.color) : undefined,
            width: 2,
            points: { show: false },
            paths: bars ? uPlot.paths.bars!({ size: [0.6, 40, 4] }) : undefined,
          })),
        ],
      },
      data,
      element,
    );
    const resized = new ResizeObserver(() => plot.current?.setSize({ width: element.clientWidth, height }));
    resized.observe(element);
    const schemes = matchMedia("(prefers-color-scheme: dark)");
    const redraw = () => plot.current?.redraw();
    schemes.addEventListener("change", redraw);
    return () => {
      resized.disconnect();
      schemes.removeEventListener("change", redraw);
      plot.current?.destroy();
    };
  }, [shape]);
  useEffect(() => plot.current?.setData(data), [JSON.stringify(data)]);
  const at = pointed !== undefined && pointed < times.length ? pointed : times.length - 1;
  const { peak } = topOf(series.flatMap((s) => s.values), least);
  const highest = peak === undefined ? undefined : series.find((s) => s.values.includes(peak));
  const moment = bars ? `run ${at + 1} of ${times.length}, ${clock(new Date(times[at]! * 1000).toISOString())}` : pointed === undefined ? "now" : timeOf(times[at]!);
  return (
    <figure class="plot">
      <div ref={place} role="img" aria-label={text} />
      <figcaption>
        {series.map((s) => (
          <span key={s.label}>
            <i style={{ background: `var(${s.color})` }} /> {s.label} <strong>{valueOf(s.values[at], format)}</strong>
          </span>
        ))}
        <span class="muted">{moment}</span>
        {highest && (
          <span class="muted">
            the peak, {format(peak!)} {highest.label} at {timeOf(times[highest.values.indexOf(peak!)]!)}, is higher than the plot
          </span>
        )}
      </figcaption>
    </figure>
  );
}

function valueOf(value: number | null | undefined, format: (n: number) => string): string {
  return value === null || value === undefined ? "none" : format(value);
}

const day = 86_400;

/** A time of an axis whose labels are so many seconds apart. */
function timeOf(seconds: number, step = 60): string {
  const date = new Date(seconds * 1000);
  return step >= day ? date.toLocaleDateString("sv-SE") : date.toLocaleTimeString("sv-SE", { timeStyle: step < 60 ? "medium" : "short" });
}

/** A range with room for the bars at both ends. */
function widened(min: number, max: number): [number, number] {
  const room = Math.max((max - min) * 0.05, 5);
  return [min - room, max + room];
}
