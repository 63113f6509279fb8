// What the tests of the page share: a real Chromium, waiting for as long as it takes, and figures.
// PAGE_BAR_MS makes it a failure that something took longer; PAGE_SHOTS names a folder for
// screenshots.
import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

export const kPatience = 120_000;

export async function until(what, check) {
  const start = Date.now();
  for (;;) {
    const found = await check();
    if (found) return found;
    assert.ok(Date.now() - start < kPatience, `never: ${what}`);
    await new Promise((wake) => setTimeout(wake, 50));
  }
}

const figures = {};
export function note(name, ms) {
  figures[name] = ms;
  if (process.env.PAGE_BAR_MS) assert.ok(ms <= Number(process.env.PAGE_BAR_MS), `${name}: ${ms} ms`);
}
export function tellFigures() {
  for (const [name, ms] of Object.entries(figures)) console.log(`${name}: on screen after ${ms} ms`);
}

// A browser for the pages at one address: what they complain of, and what they load from elsewhere.
export async function launch(playwright, address) {
  const { chromium } = (await import(pathToFileURL(join(playwright, "index.js")).href)).default;
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
  });
  const complaints = [];
  const elsewhere = [];
  const open = async (options, url) => {
    const context = await browser.newContext({ viewport: { width: 1440, height: 1000 }, ...options });
    const page = await context.newPage();
    page.setDefaultTimeout(kPatience);
    page.on("pageerror", (error) => complaints.push(String(error)));
    page.on("console", (message) => message.type() === "error" && complaints.push(message.text()));
    page.on("request", (request) => request.url().startsWith(address) || elsewhere.push(request.url()));
    await page.goto(url);
    return page;
  };
  return { open, complaints, elsewhere, close: () => browser.close() };
}

export async function shoot(page, name, fullPage = true) {
  const to = process.env.PAGE_SHOTS;
  if (!to) return;
  mkdirSync(to, { recursive: true });
  // Lines and rates need a while to be there.
  await page.waitForTimeout(Number(process.env.PAGE_SHOTS_AFTER_MS ?? 0));
  await page.screenshot({ path: join(to, `page-${name}.png`), fullPage });
}
