// Who has had how much: today, and of what counts for who is next. And what is over.

import { h, keep, part, s, say } from "./dom";
import { colour, jobLabel, nameOf, type Model } from "./model";
import { clock, hours } from "./words";

const kColumns = {
  user: "User",
  runs: "Running",
  waits: "Waiting",
  today: "GPU hours today",
  usage: "GPU hours that count",
  ratio: "Of the fair share",
};

export function makeWho(): HTMLElement {
  return h(
    "section",
    { class: "table who", "aria-label": "Users" },
    h("h2", {}, "Users"),
    h(
      "div",
      { class: "scroll" },
      h(
        "table",
        {},
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            ...Object.entries(kColumns).map(([name, text]) => h("th", { scope: "col", class: name }, text)),
          ),
        ),
        h("tbody"),
      ),
    ),
  );
}

interface User {
  name: string;
  runs: number;
  waits: number;
  today: number;
  usage: number | null;
  ratio: number | null;
}

function users(model: Model): User[] {
  const all = new Map<string, User>();
  const at = (name: string): User => {
    const found = all.get(name);
    if (found) return found;
    const made = { name, runs: 0, waits: 0, today: 0, usage: null, ratio: null };
    all.set(name, made);
    return made;
  };
  for (const [name, [runs, waits]] of Object.entries(model.queue.users)) {
    Object.assign(at(name), { runs, waits });
  }
  for (const [name, today] of Object.entries(model.today)) at(name).today = today;
  for (const share of model.shares) {
    if (share.usage_ms === 0 && !all.has(share.user)) continue;
    const ratio = share.norm_shares > 0 ? share.norm_usage / share.norm_shares : null;
    Object.assign(at(share.user), { usage: share.usage_ms, ratio });
  }
  return [...all.values()].sort((a, b) => (b.usage ?? 0) - (a.usage ?? 0) || a.name.localeCompare(b.name));
}

export function updateWho(section: Element, model: Model): void {
  const shown = users(model).slice(0, 50);
  section.toggleAttribute("hidden", shown.length === 0);
  // What counts for who is next is Slurm's to know, where it queues.
  section.classList.toggle("unshared", model.shares.length === 0);
  const whose = model.ofPods ? "Namespace" : "User";
  say(section.querySelector("h2")!, `${whose}s`);
  say(section.querySelector("th.user")!, whose);
  keep(
    section.querySelector("tbody")!,
    shown,
    (user) => user.name,
    (user) =>
      h(
        "tr",
        {},
        h("td", { class: "user" }, h("i", { class: `dot u${colour(user.name)}` }), user.name),
        ...["runs", "waits", "today", "usage"].map((name) => h("td", { class: `${name} number` })),
        h(
          "td",
          { class: "ratio" },
          h("span"),
          s(
            "svg",
            { class: "meter", viewBox: "0 0 100 4", preserveAspectRatio: "none", "aria-hidden": "true" },
            s("rect", { class: "all", width: 100, height: 4 }),
            s("rect", { class: "part", height: 4, width: 0 }),
          ),
        ),
      ),
    (element, user) => {
      element.classList.toggle("mine", user.name === model.me.user);
      say(part(element, "runs"), user.runs ? String(user.runs) : "");
      say(part(element, "waits"), user.waits ? String(user.waits) : "");
      say(part(element, "today"), user.today ? hours(user.today) : "");
      say(part(element, "usage"), user.usage === null ? "" : hours(user.usage));
      const ratio = part(element, "ratio");
      say(ratio.firstElementChild!, user.ratio === null ? "" : `${Math.round(user.ratio * 100)} %`);
      const width = Math.min(100, (user.ratio ?? 0) * 50);
      ratio.querySelector(".part")?.setAttribute("width", width.toFixed(1));
    },
  );
}

export function makeOver(): HTMLElement {
  return h(
    "section",
    { class: "over", "aria-label": "Ended lately" },
    h("h2", {}, "Ended lately"),
    h("ol"),
  );
}

export function updateOver(section: Element, model: Model, open: (job: string) => void): void {
  const jobs = model.over;
  section.toggleAttribute("hidden", jobs.length === 0);
  keep(
    section.querySelector("ol")!,
    jobs,
    nameOf,
    (job) =>
      h(
        "li",
        {},
        h("button", { type: "button", class: "link", click: () => open(nameOf(job)) }, jobLabel(job)),
        h("span", { class: "what" }),
        h("span", { class: "state" }),
        h("span", { class: "when" }),
      ),
    (element, job) => {
      say(part(element, "what"), `${job.name ?? ""} · ${job.user ?? ""}`);
      const state = part(element, "state");
      say(state, (job.state ?? "").toLowerCase().replaceAll("_", " "));
      state.dataset.state = job.state ?? "";
      say(part(element, "when"), job.end_ms ? clock(job.end_ms) : "");
    },
  );
}
