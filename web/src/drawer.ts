// One job: its times, what it holds and uses, why it waits; for its owner the script, what it
// writes as it writes it, and its end.

import { ask, askText, order, Refused } from "./api";
import { fill, h, part, say } from "./dom";
import { colour, jobLabel, type Model } from "./model";
import type { Job, LogPart, Why } from "./types";
import { clock, percent, sentence, size, span, why } from "./words";

const kLogEvery = 1000;
const kMostLog = 256 << 10;

export class Drawer {
  readonly element: HTMLElement;
  private name = "";
  private job: Job | null = null;
  private before: Element | null = null;
  private timer = 0;
  private at = 0;
  private asked = "";
  private brief = "";

  constructor(private readonly model: Model) {
    this.element = h(
      "aside",
      { class: "drawer", role: "dialog", "aria-modal": "false", "aria-label": "Job", hidden: true, tabindex: -1 },
      h(
        "header",
        {},
        h("h2"),
        h("button", { type: "button", class: "close", "aria-label": "Close", click: () => this.close() }, "×"),
      ),
      h("p", { class: "about" }),
      h("ol", { class: "times", "aria-label": "Times" }),
      h("p", { class: "reasons" }),
      h("dl", { class: "facts" }),
      h("div", { class: "orders" }),
      h("p", { class: "said", role: "status" }),
      h("details", { class: "script", hidden: true }, h("summary", {}, "Script"), h("pre")),
      h("details", { class: "log", hidden: true, open: true }, h("summary", {}, "Output"), h("pre", { tabindex: 0 })),
    );
  }

  get isOpen(): boolean {
    return this.name !== "";
  }

  open(name: string): void {
    if (!this.isOpen) this.before = document.activeElement;
    this.stop();
    this.name = name;
    this.job = null;
    this.asked = "";
    this.brief = "";
    say(part(this.element, "said"), "");
    say(part(this.element, "reasons"), "");
    for (const piece of ["script", "log"]) {
      part(this.element, piece).hidden = true;
      say(part(this.element, piece).querySelector("pre")!, "");
    }
    this.element.hidden = false;
    document.body.classList.add("with-drawer");
    this.update(Date.now());
    this.element.focus();
    void this.load();
  }

  close(): void {
    if (!this.isOpen) return;
    this.stop();
    this.name = "";
    this.element.hidden = true;
    document.body.classList.remove("with-drawer");
    if (this.before instanceof HTMLElement && this.before.isConnected) this.before.focus();
  }

  private stop(): void {
    clearTimeout(this.timer);
    this.at = 0;
  }

  // The picture has changed.
  update(now: number): void {
    if (!this.isOpen) return;
    const known = this.model.job(this.name);
    const told = known?.job ?? this.model.ended(this.name);
    if (told) this.job = { ...this.job, ...told };
    if (this.job) this.show(this.job, now, known?.why ?? this.job.reason_detail ?? "");
    // It has changed its state: what was asked of it is asked anew.
    const state = known?.job.state ?? "";
    if (this.asked && this.asked !== state) void this.load();
    this.asked = state || this.asked;
  }

  private get path(): string {
    return `v1/jobs/${encodeURIComponent(this.name)}`;
  }

  private async load(): Promise<void> {
    const name = this.name;
    if (this.model.readOnly) return;
    try {
      const job = await ask<Job>(this.path);
      if (this.name !== name) return;
      this.job = job;
      this.update(Date.now());
      this.show(job, Date.now(), job.reason_detail ?? "");
      if (job.state === "PENDING") await this.loadWhy(name);
      if (this.mayRead(job) && job.batch) await this.loadScript(name);
      if (this.mayRead(job) && job.state !== "PENDING") this.follow(name, job);
    } catch (error) {
      if (this.name === name && !this.job) this.say(error);
    }
  }

  private mayRead(job: Job): boolean {
    return this.model.isMine(job) || this.model.me.admin;
  }

  private async loadWhy(name: string): Promise<void> {
    const why = await ask<Why>(`${this.path}/why`);
    if (this.name !== name || why.sentences.length === 0) return;
    say(part(this.element, "reasons"), why.sentences.map(sentence).join(" "));
  }

  private async loadScript(name: string): Promise<void> {
    const text = await askText(`${this.path}?script=1`);
    if (this.name !== name) return;
    const script = part(this.element, "script");
    say(script.querySelector("pre")!, text);
    script.hidden = false;
  }

  // What it writes, as it writes it.
  private follow(name: string, job: Job): void {
    clearTimeout(this.timer);
    const next = async () => {
      if (this.name !== name) return;
      try {
        const got = await ask<LogPart>(`${this.path}/log?from=${this.at}`);
        if (this.name !== name) return;
        this.append(got);
      } catch (error) {
        // It cannot be read; or the server is away, and comes back.
        if (error instanceof Refused && !this.model.job(name)) return;
      }
      if (this.model.job(name)) this.timer = setTimeout(next, kLogEvery);
    };
    if (job.std_out !== "") void next();
  }

  private append(got: LogPart): void {
    const log = part(this.element, "log");
    const pre = log.querySelector("pre")!;
    log.hidden = false;
    say(log.querySelector("summary")!, `Output: ${got.path}`);
    if (got.end === this.at && got.text === "") return;
    const follows = pre.scrollTop + pre.clientHeight >= pre.scrollHeight - 8;
    const before = got.begin === this.at ? (pre.textContent ?? "") : "";
    pre.textContent = (before + got.text).slice(-kMostLog);
    this.at = got.end;
    if (follows) pre.scrollTop = pre.scrollHeight;
  }

  private say(error: unknown): void {
    say(part(this.element, "said"), sentence(error instanceof Error ? error.message : String(error)));
  }

  private async act(verb: string): Promise<void> {
    try {
      await order(`${this.path}/${verb}`);
      say(part(this.element, "said"), "");
    } catch (error) {
      this.say(error);
    }
  }

  private show(job: Job, now: number, detail: string): void {
    const user = job.user ?? "";
    fill(
      this.element.querySelector("h2")!,
      h("i", { class: `dot u${colour(user)}` }),
      `${job.pod ? "" : "Job "}${jobLabel(job)}`,
      h("span", { class: "state", "data-state": job.state }, (job.state ?? "").toLowerCase().replaceAll("_", " ")),
    );
    const account = job.account ? `, account ${job.account}` : "";
    const partition = job.partition ? `, partition ${job.partition}` : "";
    say(part(this.element, "about"), `${job.name ?? ""} of ${user}${account}${partition}`);
    this.showTimes(job, now);
    const waits = job.state === "PENDING";
    const reasons = part(this.element, "reasons");
    if (!waits) say(reasons, sentence(detail));
    else this.showReason(why(detail, job.reason ?? ""));
    this.showFacts(job);
    this.showOrders(job);
  }

  // In short, until the sentences are there; and anew when it waits for something else.
  private showReason(brief: string): void {
    if (brief === this.brief) return;
    const again = this.brief !== "";
    this.brief = brief;
    say(part(this.element, "reasons"), brief);
    if (again && !this.model.readOnly) void this.loadWhy(this.name).catch(() => undefined);
  }

  private showTimes(job: Job, now: number): void {
    const waits = job.state === "PENDING";
    const runs = ["RUNNING", "SUSPENDED", "COMPLETING"].includes(job.state ?? "");
    const times: [string, number | undefined, string][] = [
      ["submitted", job.submit_ms, "past"],
      ["could start", job.eligible_ms, job.eligible_ms && job.eligible_ms > now ? "to-come" : "past"],
      [waits ? "expected" : "started", job.start_ms, waits ? "to-come" : "past"],
      [runs ? "ends at the latest" : "ended", waits ? undefined : job.end_ms, runs ? "to-come" : "past"],
    ];
    const seen = times.filter(
      ([name, ms]) => ms && !(name === "could start" && Math.abs(ms - (job.submit_ms ?? 0)) < 2000),
    );
    fill(
      part(this.element, "times"),
      ...seen.map(([name, ms, kind]) =>
        h("li", { class: kind }, h("span", { class: "what" }, name), h("time", {}, clock(ms!))),
      ),
    );
  }

  private showFacts(job: Job): void {
    const rows: [string, string][] = [];
    if (job.gres) rows.push(["asked for", job.gres]);
    let granted = 0;
    for (const hold of job.gpus ?? []) {
      granted += hold.memory ?? 0;
      const where = hold.node ? `${hold.node} ` : "";
      const what = hold.whole ? "all of it" : `${size(hold.memory ?? 0)}, ${percent(hold.compute ?? 0)} of its compute`;
      rows.push([`${where}GPU ${hold.index ?? 0}`, what]);
    }
    const segments = this.model.segments();
    let used = 0;
    let peak = 0;
    let busy: number | null = null;
    for (const node of this.model.nodes) {
      for (const gpu of node.gpus) {
        for (const one of segments(node, gpu)) {
          if (one.name !== this.name) continue;
          used += one.used;
          peak += one.peak;
          if (one.busy !== null) busy = (busy ?? 0) + one.busy;
        }
      }
    }
    peak = Math.max(peak, job.gpu_memory_peak ?? 0);
    if (granted > 0) {
      rows.push(["GPU memory", `${size(used)} used, ${size(peak)} at most, of ${size(granted)} granted`]);
    }
    if (busy !== null) rows.push(["GPU time", `${percent(busy)} lately`]);
    else if (job.gpu_ms) rows.push(["GPU time", `${span(job.gpu_ms)}, ${percent(job.gpu_utilisation ?? 0)} on average`]);
    const memory = job.memory ? `, ${size(job.memory)} memory` : "";
    if (job.cpus) rows.push(["CPUs", `${job.cpus}${memory}`]);
    if (job.time_limit_ms) rows.push(["time limit", span(job.time_limit_ms)]);
    if (job.enforcement) rows.push(["held by", job.enforcement.replaceAll("+", ", ")]);
    if (job.exit_code || job.exit_signal) {
      rows.push(["exit", job.exit_signal ? `signal ${job.exit_signal}` : String(job.exit_code)]);
    }
    fill(
      part(this.element, "facts"),
      ...rows.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
    );
  }

  private showOrders(job: Job): void {
    const orders = part(this.element, "orders");
    const live = ["PENDING", "RUNNING", "SUSPENDED"].includes(job.state ?? "");
    const may = live && this.mayRead(job) && !job.pod;
    const key = may ? `${this.name} ${job.state} ${job.reason?.startsWith("JobHeld")}` : "";
    if (orders.dataset.key === key) return;
    orders.dataset.key = key;
    if (!may) return fill(orders);
    const cancel = h("button", { type: "button", class: "danger", click: () => ask() }, "Cancel job");
    // Asked twice: it cannot be taken back.
    const ask = () => {
      if (cancel.dataset.sure) return void this.act("cancel");
      cancel.dataset.sure = "yes";
      say(cancel, "Really cancel it?");
      setTimeout(() => {
        delete cancel.dataset.sure;
        say(cancel, "Cancel job");
      }, 4000);
    };
    const held = job.reason?.startsWith("JobHeld") ?? false;
    const hold = h(
      "button",
      { type: "button", click: () => void this.act(held ? "release" : "hold") },
      held ? "Release" : "Hold",
    );
    fill(orders, cancel, job.state === "PENDING" ? hold : null);
  }
}
