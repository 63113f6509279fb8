// A row for each GPU: its memory as a bar to scale, cut into the jobs' shares. What a job was
// granted has its user's colour, hatched where it is not used; what processes of no job hold is
// grey; what is left is free. Under it the same for compute, and beside it what the GPU does now.

import { fill, h, keep, part, s, say } from "./dom";
import { colour, jobLabel, type Model, type Segment, type SegmentsOf } from "./model";
import type { Gpu, Job, Node } from "./types";
import { percent, size } from "./words";

type Open = (job: string) => void;
// What all rows are drawn with.
interface Drawing {
  model: Model;
  of: SegmentsOf;
  room: number; // pixels of a bar
  cells: boolean;
  open: Open;
}

const kScale = 10_000;

function foreign(gpu: Gpu): number {
  return gpu.processes.reduce((sum, one) => sum + (one.job_id === undefined ? one.memory : 0), 0);
}

function told(one: Segment, gpu: Gpu): string {
  const busy = one.busy === null ? "" : `, busy ${percent(one.busy)}`;
  const compute = one.hold.whole ? "the whole GPU" : percent(one.hold.compute ?? 0);
  return (
    `Job ${jobLabel(one.job)} of ${one.job.user}: ${size(one.memory)} and ${compute} of GPU ` +
    `${gpu.index}, ${size(one.used)} used${busy}`
  );
}

// Bars are drawings of a fixed scale, stretched: no style is written into the page.
function bar(name: string, children: SVGElement[]): SVGElement {
  return s(
    "svg",
    { class: name, viewBox: `0 0 ${kScale} 10`, preserveAspectRatio: "none", "aria-hidden": "true" },
    ...children,
  );
}

function computeBar(gpu: Gpu, segments: Segment[]): SVGElement {
  const scale = kScale / Math.max(gpu.compute_limit, kScale);
  const drawn: SVGElement[] = [];
  let at = 0;
  for (const one of segments) {
    const width = (one.hold.whole ? kScale : (one.hold.compute ?? 0)) * scale;
    const user = colour(one.job.user ?? "");
    drawn.push(s("rect", { class: `granted u${user}`, x: at, y: 0, width, height: 10 }));
    if (one.busy !== null) {
      // More than the share is time that others left.
      const busy = Math.min(one.busy * scale, width);
      drawn.push(s("rect", { class: `held u${user}`, x: at, y: 0, width: busy, height: 10 }));
    }
    at += width;
    drawn.push(s("rect", { class: "gap", x: at - 12, y: 0, width: 12, height: 10 }));
  }
  return bar("compute", drawn);
}

function line(points: number[], busy: number): SVGElement {
  const all = [...points, busy / 100];
  const first = 61 - all.length;
  const at = all.map((value, i) => `${first + i},${20 - value / 5}`);
  return s(
    "svg",
    { class: "line", viewBox: "0 0 60 20", preserveAspectRatio: "none", "aria-hidden": "true" },
    s("polygon", { points: `${first},20 ${at.join(" ")} 60,20` }),
    s("polyline", { points: at.join(" ") }),
  );
}

// What a share is called: as much of it as there is room for, by the width of most letters.
function label(job: Job, room: number): string {
  const short = jobLabel(job);
  const full = job.pod ? short : `${short} ${job.user}`;
  const fits = (text: string) => text.length * 8 + 30 <= room;
  return fits(full) ? full : fits(short) ? short : "";
}

// The memory: each job a button, as wide as what it holds.
function memoryBar(element: Element, gpu: Gpu, segments: Segment[], room: number, open: Open): void {
  const total = Math.max(gpu.memory, 1);
  const wide = (part: number) => `${Math.min(100, (part / total) * 100)}%`;
  keep(
    element.querySelector(".shares")!,
    segments,
    (one) => `${one.name} ${one.hold.container ?? ""}`,
    (one) =>
      h(
        "button",
        { type: "button", class: `share u${colour(one.job.user ?? "")}`, click: () => open(one.name) },
        h("i", { class: "held" }),
        h("span"),
      ),
    (button, one) => {
      button.style.width = wide(one.memory);
      (button.firstElementChild as HTMLElement).style.width =
        `${Math.min(100, (one.used / Math.max(one.memory, 1)) * 100)}%`;
      button.title = told(one, gpu);
      button.setAttribute("aria-label", told(one, gpu));
      say(button.lastElementChild!, label(one.job, (one.memory / total) * room));
    },
  );
  part(element, "foreign").style.width = wide(foreign(gpu));
}

function makeGpu(): HTMLElement {
  return h(
    "div",
    { class: "gpu" },
    h("div", { class: "who" }, h("b"), h("span", { class: "model" }), h("span", { class: "health" })),
    h(
      "div",
      { class: "bars" },
      h("div", { class: "bar" }, h("div", { class: "shares" }), h("i", { class: "foreign" })),
      h("div", { class: "thin" }),
      h("div", { class: "under" }, h("span", { class: "amounts" }), h("span", { class: "strangers" })),
    ),
    h("div", { class: "does" }, h("div", { class: "busy" }), h("div", { class: "spark" })),
    h("div", { class: "warm" }, h("span", { class: "power" }), h("span", { class: "heat" })),
  );
}

function updateGpu(element: HTMLElement, node: Node, gpu: Gpu, { model, of, room, cells, open }: Drawing): void {
  const segments = of(node, gpu);
  say(element.querySelector("b")!, gpu.mig ? `GPU ${gpu.index} · ${gpu.mig}` : `GPU ${gpu.index}`);
  element.classList.toggle("slice", gpu.mig !== "");
  say(part(element, "model"), gpu.mig ? "" : gpu.model);
  const well = gpu.health === "ok";
  element.classList.toggle("unwell", !well);
  say(part(element, "health"), well ? "" : gpu.health);
  memoryBar(part(element, "bar"), gpu, segments, room, open);
  fill(part(element, "thin"), computeBar(gpu, segments));
  const used = gpu.stale ? "" : `, ${size(gpu.memory_used)} used`;
  say(
    part(element, "amounts"),
    `${size(gpu.memory_granted)}${cells ? "" : ` of ${size(gpu.memory)}`} granted${used} · compute ` +
      percent(gpu.compute_granted),
  );
  const others = gpu.processes.filter((one) => one.job_id === undefined);
  say(
    part(element, "strangers"),
    others.length > 0
      ? `foreign: ${others.map((one) => `${one.user} ${one.command} (${one.pid}) ${size(one.memory)}`).join(", ")}`
      : "",
  );
  say(part(element, "busy"), gpu.stale ? "–" : percent(gpu.utilisation));
  fill(part(element, "spark"), gpu.stale ? null : line(model.line(node, gpu), gpu.utilisation));
  say(part(element, "power"), gpu.power_mw === undefined ? "" : `${Math.round(gpu.power_mw / 1000)} W`);
  say(part(element, "heat"), gpu.temperature === undefined ? "" : `${gpu.temperature} °C`);
}

function makeNode(): HTMLElement {
  return h(
    "div",
    { class: "node" },
    h("div", { class: "name" }, h("b"), h("span", { class: "state" }), h("span", { class: "cpus" })),
    h("div", { class: "cells" }),
  );
}

function updateNode(element: HTMLElement, node: Node, drawing: Drawing): void {
  say(element.querySelector("b")!, node.name);
  const state = part(element, "state");
  say(state, node.reason ? `${node.state}: ${node.reason}` : node.state);
  state.dataset.state = node.state;
  say(part(element, "cpus"), node.cpus > 0 ? `${node.cpus_allocated} of ${node.cpus} CPUs` : "");
  keep(
    part(element, "cells"),
    node.gpus,
    (gpu) => gpu.uuid || String(gpu.index),
    makeGpu,
    (cell, gpu) => updateGpu(cell, node, gpu, drawing),
  );
}

export function makeGpus(): HTMLElement {
  return h(
    "section",
    { class: "gpus-section", "aria-label": "GPUs" },
    h(
      "div",
      { class: "legend", "aria-hidden": "true" },
      h("span", { class: "key used" }, "used"),
      h("span", { class: "key unused" }, "granted, not used"),
      h("span", { class: "key alien" }, "of no job"),
      h("span", { class: "key free" }, "free"),
      h("span", { class: "users" }),
    ),
    h("div", { class: "machines" }),
  );
}

export function updateGpus(section: Element, model: Model, open: Open): void {
  const nodes = model.nodes;
  // One machine has wide rows; of a cluster each node is a row, and its GPUs are cells, all of one
  // width: those of the largest node side by side, or in rows of equal length.
  const cells = nodes.length > 1;
  section.classList.toggle("cluster", cells);
  let columns = Math.max(1, ...nodes.map((node) => node.gpus.length));
  while (columns > 5) columns = Math.ceil(columns / 2);
  part(section, "machines").style.setProperty("--columns", String(columns));
  const room = section.querySelector(".bar")?.clientWidth ?? 240;
  const drawing = { model, of: model.segments(), room, cells, open };
  const users = [...new Set(model.running.map((one) => one.part.job.user ?? ""))].sort();
  keep(
    part(section, "users"),
    users.slice(0, 12),
    (user) => user,
    (user) => h("span", { class: `key user u${colour(user)}` }, user),
    () => {},
  );
  keep(
    part(section, "machines"),
    nodes,
    (node) => node.name,
    makeNode,
    (element, node) => updateNode(element, node, drawing),
  );
}
