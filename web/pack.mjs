// Compresses what Vite has built into packed/, and holds the page to its size.
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

const kMost = 60 * 1024;

rmSync("packed", { recursive: true, force: true });
mkdirSync("packed");
let sum = 0;
for (const name of readdirSync("dist")) {
  const bytes = readFileSync(`dist/${name}`);
  const packed = gzipSync(bytes, { level: 9 });
  sum += packed.length;
  // The front page has tables put into it: it is sent as it is.
  if (name === "index.html") writeFileSync(`packed/${name}`, bytes);
  else writeFileSync(`packed/${name}.gz`, packed);
}
console.log(`${sum} bytes compressed, of ${kMost}`);
if (sum > kMost) {
  console.error(`the page has ${sum} bytes compressed, and may have ${kMost}`);
  process.exit(1);
}
