// The first line: how busy the machine is, what waits, and what of it is the reader's.

import { h, part, say } from "./dom";
import type { Model } from "./model";
import { inTime } from "./words";

function card(name: string, title: string): HTMLElement {
  return h(
    "div",
    { class: `card ${name}` },
    h("div", { class: "title" }, title),
    h("div", { class: "big" }),
    h("div", { class: "small" }),
  );
}

export function makeNow(): HTMLElement {
  return h(
    "section",
    { class: "now", "aria-label": "Now" },
    card("gpus", "GPUs"),
    card("granted", "Granted"),
    card("used", "Busy"),
    card("jobs", "Jobs"),
    card("mine", "Yours"),
    card("next", "Next start"),
  );
}

function show(section: Element, name: string, big: string, small: string): void {
  const card = part(section, name);
  say(part(card, "big"), big);
  say(part(card, "small"), small);
}

export function updateNow(section: Element, model: Model, now: number): void {
  let all = 0;
  let whole = 0;
  let shared = 0;
  let free = 0;
  let broken = 0;
  let granted = 0;
  let used = 0;
  let known = 0;
  for (const node of model.nodes) {
    for (const gpu of node.gpus) {
      ++all;
      const memory = gpu.memory > 0 ? gpu.memory_granted / gpu.memory : 0;
      granted += gpu.whole ? 1 : Math.min(1, Math.max(memory, gpu.compute_granted / 10_000));
      if (!gpu.stale) {
        ++known;
        used += gpu.utilisation / 10_000;
      }
      if (gpu.health !== "ok") ++broken;
      else if (gpu.whole) ++whole;
      else if (gpu.memory_granted > 0 || gpu.compute_granted > 0) ++shared;
      else ++free;
    }
  }
  const ratio = (sum: number, of: number) => (of > 0 ? `${Math.round((sum / of) * 100)} %` : "–");
  const out = broken > 0 ? `, ${broken} out of service` : "";
  show(section, "gpus", String(all), `${whole} whole, ${shared} shared, ${free} free${out}`);
  show(section, "granted", ratio(granted, all), `${granted.toFixed(1)} of ${all} GPUs`);
  show(section, "used", ratio(used, known), known > 0 ? "time with a kernel running" : "not known");
  const queue = model.queue;
  show(section, "jobs", String(queue.running), `running, ${queue.waiting} waiting`);
  part(section, "mine").hidden = model.readOnly;
  const mine = queue.users[model.me.user];
  show(
    section,
    "mine",
    model.me.user ? String(mine?.[0] ?? 0) : "–",
    model.me.user ? `running, ${mine?.[1] ?? 0} waiting` : "sign in to see yours",
  );
  // Nobody knows when a pod ends.
  part(section, "next").hidden = model.ofPods;
  show(
    section,
    "next",
    queue.next_ms ? inTime(queue.next_ms, now) : "–",
    queue.waiting === 0 ? "nothing waits" : queue.next_ms ? "if all run to their limits" : "not known",
  );
}
