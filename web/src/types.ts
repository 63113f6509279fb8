// What the server says, as far as the page looks at it: the fields of src/api/types.hpp under the
// same names. Lists leave out what has its default.

export interface GpuHold {
  index?: number;
  uuid?: string;
  model?: string;
  memory?: number;
  compute?: number;
  whole?: boolean;
  node?: string;
  container?: string;
}

export interface Job {
  id?: number;
  array_job_id?: number;
  array_task_id?: number;
  array_pending?: string;
  name?: string;
  user?: string;
  uid?: number;
  account?: string;
  partition?: string;
  state?: string;
  reason?: string;
  reason_detail?: string;
  submit_ms?: number;
  eligible_ms?: number;
  start_ms?: number;
  end_ms?: number;
  time_limit_ms?: number;
  cpus?: number;
  memory?: number;
  gres?: string;
  node?: string;
  gpus?: GpuHold[];
  enforcement?: string;
  batch?: boolean;
  exit_code?: number;
  exit_signal?: number;
  work_dir?: string;
  std_out?: string;
  gpu_ms?: number;
  gpu_memory_peak?: number;
  gpu_utilisation?: number;
  pod?: string;
}

export interface JobPart {
  why: string;
  job: Job;
}

export interface GpuUse {
  job_id: number;
  memory: number;
  memory_peak: number;
  utilisation?: number;
  gpu_ms?: number;
  waited_ms: number;
  refusals: number;
  container?: string;
}

export interface GpuProcess {
  pid: number;
  user: string;
  command: string;
  memory: number;
  job_id?: number;
}

export interface Gpu {
  index: number;
  uuid: string;
  model: string;
  health: string;
  memory: number;
  memory_granted: number;
  memory_used: number;
  compute_limit: number;
  compute_granted: number;
  utilisation: number;
  stale: boolean;
  whole: boolean;
  jobs: number[];
  processes: GpuProcess[];
  mig: string;
  power_mw?: number;
  temperature?: number;
  uses: GpuUse[];
}

export interface Node {
  name: string;
  state: string;
  reason: string;
  cpus: number;
  cpus_allocated: number;
  gpus: Gpu[];
  driver: string;
}

export interface Cluster {
  daemon_version: string;
  cluster: string;
  simulated: boolean;
  engine: string;
}

export interface Queue {
  order: string[];
  waiting: number;
  running: number;
  next_ms?: number;
  users: Record<string, [number, number]>;
}

export interface Share {
  user: string;
  norm_shares: number;
  usage_ms: number;
  norm_usage: number;
}

export interface Day {
  step_s: number;
  end_ms: number;
  granted: (number | null)[];
  used: (number | null)[];
  wait_s: (number | null)[];
}

export interface Why {
  sentences: string[];
  earliest_start_ms?: number;
}

export interface Me {
  user: string;
  uid?: number;
  admin: boolean;
}

export interface LogPart {
  path: string;
  text: string;
  begin: number;
  end: number;
}
