// The picture that the server sends, part by part, and what several pieces of the page ask of it.

import type { Told } from "./api";
import type { Cluster, Day, Gpu, GpuHold, Job, JobPart, Me, Node, Queue, Share } from "./types";

export interface Shown {
  name: string;
  part: JobPart;
}

// What a job holds of a GPU and does with it.
export interface Segment {
  job: Job;
  name: string;
  hold: GpuHold;
  memory: number;
  used: number;
  peak: number;
  busy: number | null;
}

export type SegmentsOf = (node: Node, gpu: Gpu) => Segment[];

export class Model {
  private parts = new Map<string, unknown>();
  me: Me = { user: "", admin: false };
  filter = "";

  hear(told: Told): void {
    if (told.snapshot) this.parts.clear();
    for (const name of told.gone) this.parts.delete(name);
    for (const [name, value] of Object.entries(told.set)) this.parts.set(name, value);
  }

  private part<T>(name: string): T | undefined {
    return this.parts.get(name) as T | undefined;
  }
  private all<T>(kind: string): [string, T][] {
    const found: [string, T][] = [];
    for (const [name, value] of this.parts) {
      if (name.startsWith(kind)) found.push([name.slice(kind.length), value as T]);
    }
    return found;
  }

  get cluster(): Cluster | undefined {
    return this.part<Cluster>("cluster");
  }
  // Of a cluster, or one of its nodes: whoever looks there is nobody, and nothing more can be asked.
  get readOnly(): boolean {
    return !!this.cluster?.engine;
  }
  get ofPods(): boolean {
    return this.cluster?.engine === "kubernetes";
  }
  // Nothing newer than that could be seen, and why.
  get trouble(): { why: string; seen_ms: number } | undefined {
    return this.part<{ why: string; seen_ms: number }>("trouble");
  }
  get queue(): Queue {
    return this.part<Queue>("queue") ?? { order: [], waiting: 0, running: 0, users: {} };
  }
  get shares(): Share[] {
    return this.part<{ users: Share[] }>("shares")?.users ?? [];
  }
  get today(): Record<string, number> {
    return this.part<Record<string, number>>("today") ?? {};
  }
  get day(): Day | null {
    return this.part<Day>("day") ?? null;
  }
  get over(): Job[] {
    return this.part<Job[]>("over") ?? [];
  }
  get nodes(): Node[] {
    return this.all<Node>("node/")
      .map(([, node]) => node)
      .sort((a, b) => a.name.localeCompare(b.name, undefined, { numeric: true }));
  }
  line(node: Node, gpu: Gpu): number[] {
    const lines = this.part<Record<string, number[]>>("lines") ?? {};
    return lines[gpu.uuid || `${node.name}/${gpu.index}`] ?? [];
  }

  job(name: string): JobPart | undefined {
    return this.part<JobPart>(`job/${name}`);
  }
  ended(name: string): Job | undefined {
    return this.over.find((job) => nameOf(job) === name);
  }
  matches(job: Job): boolean {
    if (!this.filter) return true;
    const text = `${job.id} ${job.name} ${job.user} ${job.pod ?? ""} ${job.partition} ${job.account}`;
    return text.toLowerCase().includes(this.filter.toLowerCase());
  }
  get running(): Shown[] {
    return this.all<JobPart>("job/")
      .filter(([, part]) => part.job.state !== "PENDING")
      .map(([name, part]) => ({ name, part }))
      .sort(({ part: { job: a } }, { part: { job: b } }) => {
        const at = (a.start_ms ?? 0) - (b.start_ms ?? 0);
        const one = at || (a.array_job_id ?? a.id ?? 0) - (b.array_job_id ?? b.id ?? 0);
        return one || (a.array_task_id ?? 0) - (b.array_task_id ?? 0);
      });
  }
  get waiting(): Shown[] {
    const shown: Shown[] = [];
    for (const name of this.queue.order) {
      const part = this.job(name);
      if (part) shown.push({ name, part });
    }
    return shown;
  }

  isMine(job: Job): boolean {
    return this.me.user !== "" && job.user === this.me.user;
  }

  // Of each GPU, by node and uuid or index: made once for a drawing.
  segments(): SegmentsOf {
    const all = new Map<string, Segment[]>();
    for (const { name, part } of this.running) {
      for (const hold of part.job.gpus ?? []) {
        const key = hold.uuid || `${hold.node ?? ""}/${hold.index ?? 0}`;
        const list = all.get(key) ?? [];
        const memory = hold.memory ?? 0;
        list.push({ job: part.job, name, hold, memory, used: 0, peak: 0, busy: null });
        all.set(key, list);
      }
    }
    return (node, gpu) => {
      const list =
        (gpu.uuid ? all.get(gpu.uuid) : undefined) ??
        all.get(`${node.name}/${gpu.index}`) ??
        all.get(`/${gpu.index}`) ??
        [];
      for (const one of list) {
        if (one.hold.whole) one.memory = gpu.memory;
        const container = one.hold.container ?? "";
        const use = gpu.uses.find(
          (use) => use.job_id === one.job.id && (use.container ?? "") === container,
        );
        one.used = use?.memory ?? 0;
        one.peak = use?.memory_peak ?? 0;
        one.busy = use?.utilisation ?? null;
        if (use) continue;
        for (const process of gpu.processes) {
          if (process.job_id === one.job.id) one.used += process.memory;
        }
      }
      return list;
    };
  }
}

// As the server names the parts that are jobs.
export function nameOf(job: Job): string {
  return job.pod || String(job.id);
}

export function jobLabel(job: Job): string {
  if (job.pod) return job.pod;
  if (job.array_task_id !== undefined) return `${job.array_job_id ?? job.id}_${job.array_task_id}`;
  return job.array_pending ? `${job.id}_[${job.array_pending}]` : String(job.id);
}

// A user has one colour everywhere, of ten, and the same one tomorrow unless somebody else has it
// already: while there are ten or fewer, no two have the same.
const kColours = 10;
const given = new Map<string, number>();

export function colour(user: string): number {
  const known = given.get(user);
  if (known !== undefined) return known;
  let hash = 2166136261;
  for (let i = 0; i < user.length; ++i) hash = Math.imul(hash ^ user.charCodeAt(i), 16777619);
  let wanted = ((hash ^ (hash >>> 13)) >>> 0) % kColours;
  const taken = new Set(given.values());
  for (let i = 0; i < kColours && taken.has(wanted); ++i) wanted = (wanted + 1) % kColours;
  given.set(user, wanted);
  return wanted;
}
