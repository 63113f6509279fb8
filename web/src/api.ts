// The way to the server: questions and orders with the reader's token, and the stream of events. The
// token comes in the address behind '#', which no server and no log sees, and stays in this tab.

import type { Me } from "./types";

const kKey = "aliquot-token";
const kToken = /([0-9a-f]{64})\s*$/;

function takeToken(): string {
  const given = kToken.exec(location.hash)?.[1];
  if (given) {
    sessionStorage.setItem(kKey, given);
    history.replaceState(null, "", location.pathname);
  }
  return sessionStorage.getItem(kKey) ?? "";
}

let token = takeToken();

export function signOut(): void {
  sessionStorage.removeItem(kKey);
  token = "";
}

// From the token, or the address that `aliquot token` prints.
export function signIn(text: string): boolean {
  const given = kToken.exec(text)?.[1];
  if (!given) return false;
  sessionStorage.setItem(kKey, given);
  token = given;
  return true;
}

export class Refused extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

function headers(): HeadersInit {
  return token ? { Authorization: `Bearer ${token}` } : {};
}

async function explain(response: Response): Promise<Refused> {
  const text = await response.text();
  try {
    const said = JSON.parse(text) as { message?: string };
    return new Refused(response.status, said.message ?? text);
  } catch {
    return new Refused(response.status, text || response.statusText);
  }
}

async function send(path: string, method: string): Promise<Response> {
  const response = await fetch(path, { method, headers: headers(), cache: "no-store" });
  if (!response.ok) throw await explain(response);
  return response;
}

export async function ask<T>(path: string): Promise<T> {
  return (await (await send(path, "GET")).json()) as T;
}

export async function askText(path: string): Promise<string> {
  return (await send(path, "GET")).text();
}

export async function order(path: string): Promise<void> {
  await send(path, "POST");
}

// A server without users knows nobody; a token that is none any more is forgotten.
export async function whoAmI(): Promise<Me> {
  try {
    return await ask<Me>("v1/me");
  } catch (error) {
    if (error instanceof Refused && error.status === 401) signOut();
    return { user: "", admin: false };
  }
}

export interface Told {
  snapshot: boolean;
  set: Record<string, unknown>;
  gone: string[];
}

// Tells of every event, for ever: where the connection ends it is made anew, and the server begins
// with all there is. `state` hears whether there is one.
export async function follow(
  hear: (told: Told) => void,
  state: (connected: boolean, why: string) => void,
): Promise<never> {
  let pause = 500;
  for (;;) {
    try {
      const response = await fetch("events", { headers: headers(), cache: "no-store" });
      if (!response.ok || !response.body) throw await explain(response);
      state(true, "");
      pause = 500;
      await readEvents(response.body, hear);
      state(false, "the connection has ended");
    } catch (error) {
      // The token is none any more: whoever has none may see it, perhaps.
      if (error instanceof Refused && error.status === 401) signOut();
      state(false, error instanceof Refused ? error.message : "the server does not answer");
    }
    await new Promise((wake) => setTimeout(wake, pause));
    pause = Math.min(pause * 2, 8000);
  }
}

// A server that has gone without a word says nothing more, not even that it is there.
const kSilence = 45_000;

function read(reader: ReadableStreamDefaultReader<Uint8Array>) {
  let timer = 0;
  const silence = new Promise<never>((_, fail) => {
    timer = setTimeout(() => fail(new Error("silence")), kSilence);
  });
  return Promise.race([reader.read(), silence]).finally(() => clearTimeout(timer));
}

async function readEvents(body: ReadableStream<Uint8Array>, hear: (told: Told) => void) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    const { done, value } = await read(reader).catch((error: unknown) => {
      void reader.cancel();
      throw error;
    });
    if (done) return;
    text += decoder.decode(value, { stream: true });
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const event = text.slice(0, end);
      text = text.slice(end + 2);
      const kind = /^event: (\w+)$/m.exec(event)?.[1];
      const data = /^data: (.*)$/m.exec(event)?.[1];
      if (!kind || !data) continue;
      const told = JSON.parse(data) as { set: Record<string, unknown>; gone?: string[] };
      hear({ snapshot: kind === "snapshot", set: told.set, gone: told.gone ?? [] });
    }
  }
}
