import { defineConfig } from "vite";

// One program and one sheet under fixed names: the server tells browsers when they have changed.
export default defineConfig({
  base: "./",
  build: {
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: false,
    rolldownOptions: {
      output: {
        entryFileNames: "page.js",
        assetFileNames: "page[extname]",
      },
    },
    assetsDir: "",
  },
});
