// Opens a page in Debian's chromium and prints what its script left in `said`. usage: browser.cjs CHROMIUM URL
const { chromium } = require("playwright-core");

(async () => {
  const browser = await chromium.launch({ executablePath: process.argv[2], args: ["--no-sandbox", "--disable-dev-shm-usage"] });
  try {
    const page = await browser.newPage();
    let sockets = 0;
    page.on("websocket", () => sockets++);
    page.on("console", (message) => console.error(message.text()));
    page.on("pageerror", (error) => console.error(error));
    await page.goto(process.argv[3]);
    await page.waitForFunction(() => globalThis.said !== undefined, undefined, { timeout: 60_000 });
    console.log(JSON.stringify({ ...(await page.evaluate(() => globalThis.said)), sockets }));
  } finally {
    await browser.close();
  }
})();
