// The page put together: one picture, told by the server, drawn at most once a frame.

import { follow, signIn, signOut, whoAmI } from "./api";
import { fill, h, part, say } from "./dom";
import { Drawer } from "./drawer";
import { makeGpus, updateGpus } from "./gpus";
import { Model } from "./model";
import { makeNow, updateNow } from "./now";
import { makePast, updatePast } from "./past";
import { makeRunning, makeWaiting, updateRunning, updateWaiting } from "./queue";
import { makeOver, makeWho, updateOver, updateWho } from "./who";
import { clock } from "./words";

const model = new Model();
const drawer = new Drawer(model);
const open = (job: string) => drawer.open(job);

const now = makeNow();
const gpus = makeGpus();
const running = makeRunning();
const waiting = makeWaiting();
const who = makeWho();
const over = makeOver();
const past = makePast();

const filter = h("input", {
  type: "search",
  class: "filter",
  placeholder: "Find a job or a user  ( / )",
  "aria-label": "Find a job or a user",
  input: () => {
    model.filter = (filter as HTMLInputElement).value.trim();
    draw();
  },
});

const header = h(
  "header",
  { class: "top" },
  h("h1"),
  h("span", { class: "about" }),
  h("span", { class: "live", role: "status" }, "connecting"),
  filter,
  h("div", { class: "account" }),
);

function drawHeader(): void {
  const cluster = model.cluster;
  const nodes = model.nodes;
  const one = nodes.length === 1 ? nodes[0] : undefined;
  const name = one?.name ?? cluster?.cluster ?? "";
  say(header.querySelector("h1")!, name || "Aliquot");
  document.title = name ? `${name} · Aliquot` : "Aliquot";
  const words = [
    cluster?.engine ? { slurm: "Slurm", kubernetes: "Kubernetes" }[cluster.engine] : "",
    one?.driver ? `driver ${one.driver}` : "",
    one && one.state !== "idle" && one.state !== "mixed" && one.state !== "allocated" ? one.state : "",
    cluster?.simulated ? "simulated GPUs" : "",
    nodes.length > 1 ? `${nodes.length} nodes` : "",
  ];
  say(part(header, "about"), words.filter(Boolean).join(" · "));
}

function drawAccount(): void {
  const account = part(header, "account");
  if (model.me.user) {
    const leave = () => {
      signOut();
      void identify();
    };
    return fill(
      account,
      h("span", { class: "user" }, model.me.user),
      h("button", { type: "button", class: "link", click: leave }, "sign out"),
    );
  }
  const field = h("input", {
    type: "password",
    class: "token",
    placeholder: "what ‘aliquot token’ prints",
    "aria-label": "Token",
    autocomplete: "off",
    hidden: true,
    keydown: (event: KeyboardEvent) => {
      if (event.key === "Enter" && signIn((field as HTMLInputElement).value)) void identify();
    },
  }) as HTMLInputElement;
  const ask = () => {
    field.hidden = false;
    field.focus();
  };
  fill(account, field, h("button", { type: "button", class: "link", click: ask }, "sign in"));
}

async function identify(): Promise<void> {
  model.me = await whoAmI();
  drawAccount();
  draw();
}

let due = false;

function draw(): void {
  if (due) return;
  due = true;
  // Not by the frame alone: a page in the background is drawn as well, only more seldom.
  setTimeout(() => {
    due = false;
    if (!model.cluster) return;
    const moment = Date.now();
    drawHeader();
    drawLive();
    part(header, "account").hidden = model.readOnly;
    updateNow(now, model, moment);
    updateGpus(gpus, model, open);
    updateRunning(running, model, moment, open);
    updateWaiting(waiting, model, moment, open);
    updateWho(who, model);
    updateOver(over, model, open);
    updatePast(past, model.day);
    drawer.update(moment);
  }, 16);
}

// The whole page by the keyboard: / finds, j and k go from job to job, Enter opens, Escape closes.
function step(forward: boolean): void {
  const rows = [...document.querySelectorAll<HTMLElement>("tr[tabindex]")];
  const here = rows.indexOf(document.activeElement as HTMLElement);
  const next = here < 0 ? 0 : Math.max(0, Math.min(rows.length - 1, here + (forward ? 1 : -1)));
  rows[next]?.focus();
}

document.addEventListener("keydown", (event) => {
  const typing = event.target instanceof HTMLInputElement;
  if (event.key === "Escape") {
    if (typing) (event.target as HTMLInputElement).blur();
    drawer.close();
  } else if (typing || event.ctrlKey || event.metaKey || event.altKey) {
    return;
  } else if (event.key === "/") {
    event.preventDefault();
    filter.focus();
  } else if (event.key === "j" || event.key === "k") {
    step(event.key === "j");
  }
});

function begin(): void {
  const page = document.getElementById("page")!;
  fill(
    page,
    header,
    now,
    gpus,
    running,
    waiting,
    h("div", { class: "pair" }, who, h("div", { class: "column" }, past, over)),
    drawer.element,
  );
  document.body.classList.add("alive");
}

let begun = false;
let lost = "connecting";

function drawLive(): void {
  const trouble = model.trouble;
  const words = lost || (trouble ? `as of ${clock(trouble.seen_ms)}: ${trouble.why}` : "live");
  say(part(header, "live"), words);
  header.classList.toggle("lost", words !== "live" && words !== "connecting");
}

void identify();
void follow(
  (told) => {
    model.hear(told);
    // The tables stay until there is something better.
    if (!begun) begin();
    begun = true;
    draw();
  },
  (connected, why) => {
    if (!begun && !connected) {
      // Only its owner may see it: where to give the token.
      const page = document.getElementById("page")!;
      if (!header.isConnected) page.prepend(header);
    }
    lost = connected ? "" : why;
    drawLive();
  },
);
// Times go on without news.
setInterval(draw, 1000);
