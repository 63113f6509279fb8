// Numbers and times as people read them.

export function size(bytes: number): string {
  const units = ["B", "K", "M", "G", "T"];
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    ++unit;
  }
  return `${value >= 100 || unit === 0 ? Math.round(value) : +value.toFixed(1)}${units[unit]}`;
}

// Of 1/10,000.
export function percent(parts: number): string {
  const value = parts / 100;
  return `${value >= 10 || value === 0 ? Math.round(value) : +value.toFixed(1)} %`;
}

export function span(ms: number): string {
  const minutes = Math.floor(Math.max(ms, 0) / 60_000);
  if (minutes < 1) return `${Math.floor(Math.max(ms, 0) / 1000)} s`;
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${String(minutes % 60).padStart(2, "0")}`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export function hours(ms: number): string {
  const value = ms / 3_600_000;
  return value >= 100 ? String(Math.round(value)) : value.toFixed(1);
}

export function clock(ms: number): string {
  const then = new Date(ms);
  const today = new Date().toDateString() === then.toDateString();
  const time = then.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  return today ? time : `${then.toLocaleDateString([], { day: "numeric", month: "short" })} ${time}`;
}

export function inTime(ms: number, now: number): string {
  return ms <= now + 1000 ? "any moment" : `in ${span(ms - now)}`;
}

export function sentence(text: string): string {
  if (!text) return "";
  const begun = text[0]!.toUpperCase() + text.slice(1);
  return /[.!?]$/.test(begun) ? begun : `${begun}.`;
}

// Slurm's words where nothing else is said.
const kReasons: Record<string, string> = {
  None: "It is about to be looked at.",
  Priority: "Jobs before it wait for the room that it needs.",
  Resources: "There is not enough room for it now.",
  Dependency: "It waits for other jobs.",
  JobHeldUser: "Its user holds it.",
  JobHeldAdmin: "An administrator holds it.",
  BeginTime: "It is not to start before its time.",
  JobArrayTaskLimit: "As many of its array run as may run at once.",
};

export function why(detail: string, reason: string): string {
  return detail ? sentence(detail) : (kReasons[reason] ?? reason);
}
