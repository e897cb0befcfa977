// A plot of values over time.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";

export interface Series {
  label: string;
  values: (number | null)[];
  /** A custom property of the style sheet. */
  color: string;
  bars?: boolean;
}

/** Draws series over times (seconds since the epoch). The text says the same for those who cannot see it. */
export function Plot({ times, series, text, format }: { times: number[]; series: Series[]; text: string; format: (n: number) => string }) {
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
        scales: { y: { range: (_, __, max) => [0, max > 0 ? max * 1.1 : 1] } },
        axes: [axis, { ...axis, size: 64, values: (_, splits) => splits.map(format) }],
        series: [
          {},
          ...series.map((s) => ({
            label: s.label,
            stroke: () => color(s.color),
            fill: s.bars ? () => color(s.color) : undefined,
            width: 2,
            points: { show: false },
            paths: s.bars ? uPlot.paths.bars!({ size: [0.6, 40] }) : undefined,
            value: (_: uPlot, value: number | null) => (value === null ? "" : format(value)),
          })),
        ],
      },
      [times, ...series.map((s) => s.values)],
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
  useEffect(() => plot.current?.setData([times, ...series.map((s) => s.values)]), [times, ...series.map((s) => s.values)]);
  return <div class="plot" ref={place} role="img" aria-label={text} />;
}
