// What runs and what waits, in the order in which it will run, each with why and when.

import { h, keep, part, s, say } from "./dom";
import { colour, jobLabel, type Model, type Shown } from "./model";
import type { Job } from "./types";
import { clock, inTime, percent, size, span, why } from "./words";

type Open = (job: string) => void;

function table(name: string, title: string, columns: Record<string, string>): HTMLElement {
  return h(
    "section",
    { class: `table ${name}`, "aria-label": title },
    h("h2", {}, title, h("span", { class: "count" })),
    h(
      "div",
      { class: "scroll" },
      h(
        "table",
        {},
        h("thead", {}, h("tr", {}, ...Object.entries(columns).map(([name, text]) => h("th", { scope: "col", class: name }, text)))),
        h("tbody"),
      ),
    ),
    h("p", { class: "rest" }),
  );
}

const kRunning = { id: "Job", name: "Name", user: "User", on: "On", time: "Time", mem: "GPU memory", busy: "Busy" };
const kWaiting = { place: "", id: "Job", name: "Name", user: "User", wants: "Wants", why: "Why", starts: "Starts" };

export function makeRunning(): HTMLElement {
  return table("running", "Running", kRunning);
}
export function makeWaiting(): HTMLElement {
  return table("waiting", "Waiting", kWaiting);
}

// A pod has its name in its label, and a namespace in place of a user.
function headings(section: Element, model: Model): void {
  section.classList.toggle("pods", model.ofPods);
  say(section.querySelector("th.id")!, model.ofPods ? "Pod" : "Job");
  say(section.querySelector("th.user")!, model.ofPods ? "Namespace" : "User");
}

function meter(name: string): SVGElement {
  return s(
    "svg",
    { class: `meter ${name}`, viewBox: "0 0 100 4", preserveAspectRatio: "none", "aria-hidden": "true" },
    s("rect", { class: "all", width: 100, height: 4 }),
    s("rect", { class: "part", height: 4, width: 0 }),
  );
}
function setMeter(cell: Element, ratio: number): void {
  const width = Math.max(0, Math.min(100, ratio * 100)).toFixed(1);
  cell.querySelector(".part")?.setAttribute("width", width);
}

function row(name: string, columns: Record<string, string>, open: Open): HTMLElement {
  return h(
    "tr",
    {
      tabindex: 0,
      click: () => open(name),
      keydown: (event: KeyboardEvent) => {
        if (event.key === "Enter") open(name);
      },
    },
    ...Object.keys(columns).map((cell) => h("td", { class: cell })),
  );
}

function userCell(cell: Element, user: string): void {
  if (cell.textContent === user) return;
  cell.replaceChildren(h("i", { class: `dot u${colour(user)}` }), user);
}

function on(job: Job): string {
  const holds = (job.gpus ?? []).map((hold) => {
    const where = hold.node ? `${hold.node}:` : "";
    return hold.whole ? `${where}${hold.index ?? 0}` : `${where}${hold.index ?? 0} (${percent(hold.compute ?? 0)})`;
  });
  return holds.length > 0 ? `GPU ${holds.join(", ")}` : `${job.cpus ?? 1} CPU`;
}

function rest(section: Element, shown: number, all: number, filter: string): void {
  const text =
    filter && shown === 0
      ? `none of them matches “${filter}”`
      : all > shown && !filter
        ? `and ${all - shown} more`
        : "";
  say(part(section, "rest"), text);
  say(part(section, "count"), String(all));
}

function held(sum: { granted: number; used: number | null } | undefined): string {
  if (!sum) return "";
  return sum.used === null ? size(sum.granted) : `${size(sum.used)} of ${size(sum.granted)}`;
}

export function updateRunning(section: Element, model: Model, now: number, open: Open): void {
  headings(section, model);
  const of = model.segments();
  const memory = new Map<string, { granted: number; used: number | null; busy: number | null }>();
  for (const node of model.nodes) {
    for (const gpu of node.gpus) {
      for (const one of of(node, gpu)) {
        const sum = memory.get(one.name) ?? { granted: 0, used: null, busy: null };
        sum.granted += one.memory;
        if (!gpu.stale) sum.used = (sum.used ?? 0) + one.used;
        if (one.busy !== null) sum.busy = (sum.busy ?? 0) + one.busy;
        memory.set(one.name, sum);
      }
    }
  }
  const shown = model.running.filter((one) => model.matches(one.part.job));
  keep(
    section.querySelector("tbody")!,
    shown,
    (one) => one.name,
    (one) => {
      const made = row(one.name, kRunning, open);
      part(made, "time").append(h("span"), meter("elapsed"));
      part(made, "mem").append(h("span"), meter("held"));
      return made;
    },
    (element, { name, part: { job } }) => {
      element.classList.toggle("mine", model.isMine(job));
      element.dataset.state = job.state ?? "";
      say(part(element, "id"), jobLabel(job));
      say(part(element, "name"), job.name ?? "");
      userCell(part(element, "user"), job.user ?? "");
      say(part(element, "on"), job.state === "RUNNING" ? on(job) : `${on(job)} · ${(job.state ?? "").toLowerCase()}`);
      const ran = now - (job.start_ms ?? now);
      const time = part(element, "time");
      say(
        time.firstElementChild!,
        job.time_limit_ms ? `${span(ran)} of ${span(job.time_limit_ms)}` : span(ran),
      );
      setMeter(time, job.time_limit_ms ? ran / job.time_limit_ms : 0);
      const sum = memory.get(name);
      const mem = part(element, "mem");
      say(mem.firstElementChild!, held(sum));
      setMeter(mem, sum && sum.granted > 0 ? (sum.used ?? 0) / sum.granted : 0);
      say(part(element, "busy"), sum && sum.busy !== null ? percent(sum.busy) : "");
    },
  );
  rest(section, shown.length, model.queue.running, model.filter);
}

export function updateWaiting(section: Element, model: Model, now: number, open: Open): void {
  headings(section, model);
  const all = model.waiting;
  const place = new Map(all.map((one, i) => [one.name, i + 1]));
  const shown = all.filter((one: Shown) => model.matches(one.part.job));
  keep(
    section.querySelector("tbody")!,
    shown,
    (one) => one.name,
    (one) => row(one.name, kWaiting, open),
    (element, { name, part: { job, why: detail } }) => {
      element.classList.toggle("mine", model.isMine(job));
      say(part(element, "place"), String(place.get(name)));
      say(part(element, "id"), jobLabel(job));
      say(part(element, "name"), job.name ?? "");
      userCell(part(element, "user"), job.user ?? "");
      say(part(element, "wants"), job.gres || `${job.cpus ?? 1} CPU`);
      const reason = part(element, "why");
      say(reason, why(detail, job.reason ?? "None"));
      reason.title = job.reason ?? "";
      const starts = part(element, "starts");
      say(starts, job.start_ms ? inTime(job.start_ms, now) : "");
      starts.title = job.start_ms ? clock(job.start_ms) : "";
    },
  );
  rest(section, shown.length, model.queue.waiting, model.filter);
}
