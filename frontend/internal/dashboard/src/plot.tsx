// A plot of values over time.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";

export interface Series {
  label: string;
  values: (number | null)[];
  /** A custom property of the style sheet. */
  color: string;
}

const wholeSteps = Array.from({ length: 12 }, (_, power) => [1, 2, 5].map((n) => n * 10 ** power)).flat();

/** Draws series over times (seconds since the epoch), or without times a bar for each value, which is a whole number. The
 * text says the same for those who cannot see it. */
export function Plot({ times, series, text, format }: { times?: number[]; series: Series[]; text: string; format: (n: number) => string }) {
  const places = times ?? series[0]!.values.map((_, i) => i);
  const data: uPlot.AlignedData = [places, ...series.map((s) => s.values)];
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>(undefined);
  const shape = series.map((s) => s.label + s.color).join();
  useEffect(() => {
    const element = place.current!;
    const style = getComputedStyle(element);
    const color = (name: string) => style.getPropertyValue(name).trim() || style.color;
    const axis = { stroke: () => color("--muted"), font: "12px system-ui, sans-serif", grid: { stroke: () => color("--line"), width: 1 }, ticks: { show: false } };
    plot.current = new uPlot(
      {
        width: element.clientWidth || 300,
        height: 160,
        cursor: { drag: { x: false, y: false } },
        legend: { live: true },
        scales: { x: times ? {} : { time: false, range: (_, min, max) => [min - 0.5, max + 0.5] }, y: { range: (_, __, max) => [0, max > 0 ? max * 1.1 : 1] } },
        axes: [times ? axis : { ...axis, values: () => [] }, { ...axis, size: 76, incrs: times ? undefined : wholeSteps, values: (_, splits) => splits.map(format) }],
        series: [
          times ? {} : { label: "run", value: (_, place: number | null) => (place === null ? "" : String(place + 1)) },
          ...series.map((s) => ({
            label: s.label,
            stroke: () => color(s.color),
            fill: times ? undefined : () => color(s.color),
            width: 2,
            points: { show: false },
            paths: !times ? uPlot.paths.bars!({ size: [0.6, 40] }) : undefined,
            value: (_: uPlot, value: number | null) => (value === null ? "" : format(value)),
          })),
        ],
      },
      data,
      element,
    );
    const resized = new ResizeObserver(() => plot.current?.setSize({ width: element.clientWidth, height: 160 }));
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
  return <div class="plot" ref={place} role="img" aria-label={text} />;
}
