// A day: what was granted against what was used, and how long jobs waited.

import { fill, h, part, s, say } from "./dom";
import type { Day } from "./types";
import { clock, span } from "./words";

const kWidth = 1440;
const kHeight = 200;

export function makePast(): HTMLElement {
  return h(
    "section",
    { class: "past", "aria-label": "The last 24 hours" },
    h("h2", {}, "24 hours", h("span", { class: "count" })),
    h(
      "div",
      { class: "legend", "aria-hidden": "true" },
      h("span", { class: "key line-granted" }, "granted"),
      h("span", { class: "key line-used" }, "used"),
      h("span", { class: "key line-wait" }, "median wait of jobs that started"),
    ),
    h("div", { class: "chart" }),
    h("div", { class: "axis", "aria-hidden": "true" }),
  );
}

// Pieces of a line where something is known.
function pieces(values: (number | null)[], y: (value: number) => number): string[] {
  const step = kWidth / Math.max(values.length, 1);
  const all: string[] = [];
  let piece: string[] = [];
  const end = () => {
    if (piece.length > 0) all.push(piece.join(" "));
    piece = [];
  };
  values.forEach((value, i) => {
    if (value === null) return end();
    // A bucket is as wide as it lasts, so that one alone is seen.
    piece.push(`${(i * step).toFixed(1)},${y(value).toFixed(1)}`);
    piece.push(`${((i + 1) * step).toFixed(1)},${y(value).toFixed(1)}`);
  });
  end();
  return all;
}

function area(points: string): string {
  const first = points.split(",", 1)[0];
  const last = points.slice(points.lastIndexOf(" ") + 1).split(",", 1)[0];
  return `${first},${kHeight} ${points} ${last},${kHeight}`;
}

function mean(values: (number | null)[]): number | null {
  const known = values.filter((value) => value !== null);
  return known.length > 0 ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
}

let drawn = "";

export function updatePast(section: Element, day: Day | null): void {
  section.toggleAttribute("hidden", day === null);
  if (day === null) return;
  const key = JSON.stringify(day);
  if (key === drawn) return;
  drawn = key;
  const full = (value: number) => kHeight - (value / 10_000) * kHeight;
  const longest = Math.max(60, ...day.wait_s.map((value) => value ?? 0));
  const wait = (value: number) => kHeight - (value / longest) * kHeight * 0.9;
  const granted = mean(day.granted);
  const used = mean(day.used);
  const text =
    granted === null || used === null
      ? ""
      : `${Math.round(granted / 100)} % granted, ${Math.round(used / 100)} % used`;
  say(part(section, "count"), text);
  fill(
    part(section, "chart"),
    s(
      "svg",
      { viewBox: `0 0 ${kWidth} ${kHeight}`, preserveAspectRatio: "none", role: "img", "aria-label": text },
      ...[0.25, 0.5, 0.75].map((y) =>
        s("line", { class: "grid", x1: 0, x2: kWidth, y1: y * kHeight, y2: y * kHeight }),
      ),
      ...pieces(day.granted, full).map((points) => s("polygon", { class: "granted", points: area(points) })),
      ...pieces(day.used, full).map((points) => s("polygon", { class: "used", points: area(points) })),
      ...pieces(day.granted, full).map((points) => s("polyline", { class: "granted", points })),
      ...pieces(day.wait_s, wait).map((points) => s("polyline", { class: "wait", points })),
    ),
    h("span", { class: "top" }, "100 %"),
    day.wait_s.some((value) => value !== null) ? h("span", { class: "longest" }, `wait ${span(longest * 1000)}`) : null,
  );
  const start = day.end_ms - day.step_s * 1000 * day.granted.length;
  const marks = [0, 0.25, 0.5, 0.75, 1].map((at) => h("span", {}, clock(start + at * (day.end_ms - start))));
  fill(part(section, "axis"), ...marks);
}
