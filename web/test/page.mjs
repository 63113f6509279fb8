// The page in a real Chromium: a daemon with simulated GPUs of its own, jobs, and what is seen of
// them. What is waited for is waited for as long as it takes; how long that was is printed.
//
// usage: node page.mjs BIN PLAYWRIGHT, where BIN has the programs and PLAYWRIGHT is the folder of playwright-core
import assert from "node:assert/strict";
import { execFile, execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir, userInfo } from "node:os";
import { join } from "node:path";
import { launch, note, shoot, tellFigures, until } from "./harness.mjs";

const [bin, playwright] = process.argv.slice(2);
const folder = mkdtempSync(join(tmpdir(), "aliquot-page-"));
const aliquot = join(bin, "aliquot");
const environment = { ...process.env, ALIQUOT_SOCKET: join(folder, "s"), TZ: "UTC" };
const me = userInfo().username;

function freePort() {
  return new Promise((done) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => done(port));
    });
  });
}
const run = (words, options = {}) =>
  execFileSync(aliquot, words, { env: environment, cwd: folder, encoding: "utf8", ...options });
const submit = (...words) => Number(run(["sbatch", "--parsable", "-t", "2:00:00", ...words]).trim());
// As other users, where we may.
function submitAs(user, ...words) {
  if (userInfo().uid !== 0 || user === me) return submit(...words);
  const text = execFileSync(
    "runuser",
    ["-u", user, "--", aliquot, "sbatch", "--parsable", "-t", "2:00:00", "-D", "/", "-o", "/dev/null", ...words],
    { env: environment, cwd: "/", encoding: "utf8" },
  );
  return Number(text.trim());
}
const port = await freePort();
const address = `http://127.0.0.1:${port}/`;
const config = join(folder, "aliquot.toml");
writeFileSync(config, `[page]\nport = ${port}\n[jobs]\nkill_wait = 1\n[monitor]\ninterval = 1\n[node]\nname = "gpu1"\n`);
execFileSync("chmod", ["0755", folder]);
const daemon = spawn(
  join(bin, "aliquotd"),
  ["--foreground", "--socket", environment.ALIQUOT_SOCKET, "--state-dir", join(folder, "state"), "--config", config, "--simulate", "h200:4"],
  { stdio: ["ignore", "ignore", "inherit"] },
);
let browser;
try {
  await until("the daemon", () => new Promise((done) => execFile(aliquot, ["status"], { env: environment }, (error) => done(!error))));

  // Four GPUs, sixty jobs of several users.
  const load = (words) => ["--wrap", `'${bin}/aliquot-load' ${words} --seconds 900`];
  const users = userInfo().uid === 0 ? [me, "games", "news", "mail", "www-data"] : [me];
  submitAs(users.at(-1), "-J", "pretrain", "--gres=gpu:1", ...load("--mem 96G --busy 90%"));
  const shares = [
    ["notebook", "--gpu-mem=35G", "--gpu-share=25%", "--mem 20G --busy 40%"],
    ["finetune", "--gpu-mem=70G", "--gpu-share=50%", "--mem 61G --busy 80%"],
    ["eval", "--gpu-mem=20G", "--gpu-share=20%", "--mem 4G --busy 10%"],
    ["course", "--gpu-mem=14G", "--gpu-share=10%", "--mem 9G --busy 20%"],
  ];
  for (let i = 0; i < 9; ++i) {
    const [name, memory, share, words] = shares[i % shares.length];
    submitAs(users[i % users.length], "-J", name, memory, share, ...load(words));
  }
  const mine = submit("-J", "mine", "--gpu-mem=14G", "-o", join(folder, "mine.out"), "--wrap", "echo it begins; sleep 900");
  for (let i = 0; i < 48; ++i) {
    submitAs(users[i % users.length], "-J", `queued-${i}`, i % 3 ? "--gres=gpu:1" : "--gpu-mem=100G", "--wrap", "sleep 900");
  }
  const hostile = submit("-J", "<img src=x onerror=alert(1)>", "--gres=gpu:2", "--wrap", "sleep 900");

  browser = await launch(playwright, address);
  const { open, complaints, elsewhere } = browser;
  const token = JSON.parse(run(["token", "--json"])).token;
  const page = await open({}, `${address}#${token}`);
  const row = (id) => page.locator(`tr[data-key="${id}"]`);

  // What there is to be seen.
  await page.locator(".live", { hasText: "live" }).waitFor();
  assert.ok(!page.url().includes(token), "the token does not stay in the address");
  await page.locator(".account .user", { hasText: me }).waitFor();
  assert.equal(await page.locator(".gpu").count(), 4);
  await row(mine).waitFor();
  await until("the queue", async () => (await page.locator(".waiting tbody tr").count()) >= 40);
  await page.locator(".gpu .share").first().waitFor();
  assert.equal(await row(hostile).locator(".name").textContent(), "<img src=x onerror=alert(1)>");

  // A job is submitted, starts and ends by itself: each is seen at once.
  let began = Date.now();
  const quick = submit("-J", "quick", "-o", "/dev/null", "--wrap", `until [ -e '${folder}/go' ]; do sleep 0.05; done`);
  await row(quick).locator(".time").waitFor();
  note("a job that starts", Date.now() - began);
  writeFileSync(join(folder, "go"), "");
  began = Date.now();
  await row(quick).waitFor({ state: "detached" });
  note("a job that ends", Date.now() - began);
  await page.locator(".over li", { hasText: "quick" }).locator("[data-state=COMPLETED]").waitFor();

  await shoot(page, "light");
  await page.emulateMedia({ colorScheme: "dark" });
  await shoot(page, "dark");
  await page.emulateMedia({ colorScheme: "light" });

  // The drawer, by the keyboard: what the job writes, and its end.
  await page.locator(".filter").fill("mine");
  await until("the filter", async () => (await page.locator(".running tbody tr").count()) === 1);
  await row(mine).focus();
  await page.keyboard.press("Enter");
  const drawer = page.locator(".drawer");
  await drawer.locator(".log pre", { hasText: "it begins" }).waitFor();
  await drawer.locator(".script pre", { hasText: "sleep 900" }).waitFor({ state: "attached" });
  await page.locator(".filter").fill("");
  await shoot(page, "job", false);
  await drawer.locator(".danger").click();
  await drawer.locator(".danger", { hasText: "Really" }).waitFor();
  began = Date.now();
  await drawer.locator(".danger").click();
  // Its processes have a second to end: that it is ending is what is seen at once.
  await page.waitForFunction((id) => document.querySelector(`tr[data-key="${id}"]`)?.dataset.state !== "RUNNING", String(mine), { polling: 20 });
  note("a job that is cancelled", Date.now() - began);
  await row(mine).waitFor({ state: "detached" });
  await until("the end of it", () => run(["sacct", "-nXP", "-o", "State", "-j", String(mine)]).startsWith("CANCELLED"));
  await page.keyboard.press("Escape");
  await drawer.waitFor({ state: "hidden" });
  await page.keyboard.press("/");
  assert.ok(await page.locator(".filter").evaluate((element) => element === document.activeElement));

  // Without a token it is to be read alone.
  const reader = await open({}, address);
  await reader.locator(".running tbody tr").first().click();
  await reader.locator(".drawer .facts dd").first().waitFor();
  assert.equal(await reader.locator(".drawer .orders button").count(), 0);
  assert.equal((await fetch(`${address}v1/jobs/${hostile}/cancel`, { method: "POST" })).status, 401);

  // Without JavaScript it is tables.
  const plain = await open({ javaScriptEnabled: false }, address);
  assert.equal(await plain.locator("table").count(), 3);
  assert.match(await plain.locator("main").textContent(), /queued-/);

  // The daemon goes and comes back: so does the page.
  assert.deepEqual(complaints.filter((text) => !text.includes("401")), []);
  assert.deepEqual(elsewhere, [], "nothing is loaded from elsewhere");
  tellFigures();
} finally {
  await browser?.close();
  try {
    run(["scancel", "-u", me]);
    for (const user of ["games", "news", "mail", "www-data"]) run(["scancel", "-u", user]);
    await until("the ends", () => run(["squeue", "-h", "-t", "R,CG"]) === "");
  } catch (error) {
    console.error(String(error));
  }
  daemon.kill("SIGTERM");
  await new Promise((done) => daemon.once("exit", done));
  rmSync(folder, { recursive: true, force: true });
}
