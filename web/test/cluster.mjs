// The page of a cluster in a real Chromium: one job from its submission to its end, and what the
// figures of its node say of it meanwhile.
//
// usage: node cluster.mjs PLAYWRIGHT ADDRESS NODES GPUS SCRIPT [NAME]
// SCRIPT is run by bash: 'submit' submits a job that has to wait and prints its name on the page,
// 'room' makes room for it, 'end' ends it, and 'figures' prints the figures of the node where it
// runs, as Prometheus gets them. NAME is the screenshot's (cluster).
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { launch, note, shoot, tellFigures, until } from "./harness.mjs";

const [playwright, address, nodes, gpus, script, shot = "cluster"] = process.argv.slice(2);
const run = async (verb) => (await promisify(execFile)("bash", [script, verb], { encoding: "utf8" })).stdout.trim();
const figures = async (job) => {
  const name = job.split("/").at(-1);
  const own = new RegExp(`^aliquot_share_memory_limit_bytes\\{gpu="(\\d+)".*(?:job|pod)="${name}".*\\} ([1-9]\\d+)$`, "gm");
  return [...(await run("figures")).matchAll(own)].map(([, gpu]) => gpu);
};

const browser = await launch(playwright, address);
const { open, complaints, elsewhere } = browser;
try {
  const page = await open({}, address);
  await page.locator(".live", { hasText: "live" }).waitFor();
  assert.equal(await page.locator(".node").count(), Number(nodes));
  assert.equal(await page.locator(".gpu").count(), Number(gpus));
  assert.ok(await page.locator(".account").isHidden(), "nobody can sign in where nothing can be done");

  // It waits, and why.
  let began = Date.now();
  const job = await run("submit");
  assert.match(job, /^[\w./-]+$/);
  const waits = page.locator(`.waiting tr[data-key="${job}"]`);
  const runs = page.locator(`.running tr[data-key="${job}"]`);
  const share = page.locator(`.share[data-key^="${job} "]`);
  await waits.waitFor();
  note("a job that is submitted", Date.now() - began);
  await until("why", async () => /room|nodes are available|largest/.test(await waits.locator(".why").textContent()));
  assert.equal(await share.count(), 0);
  assert.deepEqual(await figures(job), []);

  // It runs, in the cell of the GPU that it has.
  began = Date.now();
  await run("room");
  await runs.waitFor();
  note("a job that starts", Date.now() - began);
  await waits.waitFor({ state: "detached" });
  await share.waitFor();
  const [, node, gpu] = /^GPU ([\w.-]+):(\d+)/.exec(await runs.locator(".on").textContent());
  const cell = page.locator(`.node[data-key="${node}"] .gpu`).nth(Number(gpu));
  assert.equal(await cell.locator("b").first().textContent(), `GPU ${gpu}`);
  assert.equal(await cell.locator(`.share[data-key^="${job} "]`).count(), 1, `it is shown on ${node}:${gpu}`);
  assert.equal(await share.count(), 1, "and nowhere else");
  await until("its figures", async () => (await figures(job)).length > 0);
  assert.deepEqual(await figures(job), [gpu], "the figures of its node say the same");
  await until("what it uses", async () => /^[1-9][\d.]*[MG] of /.test(await runs.locator(".mem").textContent()));
  await shoot(page, shot);

  // Opened, it tells what it holds; there is nothing to be ordered.
  await share.click();
  const drawer = page.locator(".drawer");
  await drawer.locator("dt", { hasText: `${node} GPU ${gpu}` }).waitFor();
  assert.equal(await drawer.locator(".said").textContent(), "");
  assert.equal(await drawer.locator(".orders button").count(), 0);
  await page.keyboard.press("Escape");
  await drawer.waitFor({ state: "hidden" });

  // It ends, and is gone everywhere.
  began = Date.now();
  await run("end");
  await runs.waitFor({ state: "detached" });
  note("a job that ends", Date.now() - began);
  await share.waitFor({ state: "detached" });
  await until("no figures", async () => (await figures(job)).length === 0);

  // Without JavaScript it is tables.
  const plain = await open({ javaScriptEnabled: false }, address);
  assert.match(await plain.locator("table").first().textContent(), new RegExp(`${node} ${gpu}`));

  assert.deepEqual(complaints, []);
  assert.deepEqual(elsewhere, [], "nothing is loaded from elsewhere");
  tellFigures();
} finally {
  await browser.close();
}
