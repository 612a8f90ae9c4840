// A browser with JupyterLab in it, as a person uses it: by what is on the screen. Takes one command a line from stdin,
// {"do": NAME, …}, and answers each with a line: {"value": …} or {"error": TEXT}. Ends with its stdin.
"use strict";
const readline = require("node:readline");
const { chromium } = require("playwright-core");

const PATIENCE = 60_000; // ms that a thing may take to appear on a machine with much else to do
const [executablePath, shots] = process.argv.slice(2);
let browser;
let page; // of JupyterLab

const cells = () => page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-CodeCell");

async function open({ url }) {
    if (page) await page.context().close();
    const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, locale: "en-US" });
    page = await context.newPage();
    page.setDefaultTimeout(PATIENCE);
    await page.goto(url);
    await page.locator(".jp-LauncherCard").first().waitFor();
}

/** A new notebook from the launcher's card of that kernel. */
async function create({ kernel }) {
    const card = page.locator(`.jp-Launcher:not(.lm-mod-hidden) .jp-LauncherCard[data-category="Notebook"][title="${kernel}"]`);
    if (!(await card.isVisible())) await page.locator('jp-button[data-command="launcher:create"]').first().click();
    await card.click();
    await cells().first().waitFor();
}

/** Types code into the last cell and runs it; the number of the cell. */
async function run({ code }) {
    const number = (await cells().count()) - 1;
    await type({ code });
    await cells().nth(number).locator(".cm-content").press("Shift+Enter");
    return number;
}

/** Types code into the last cell, in place of what is there. */
async function type({ code }) {
    const editor = cells().last().locator(".cm-content");
    const lines = () => editor.evaluate((node) => [...node.querySelectorAll(".cm-line")].map((e) => e.textContent).join("\n"));
    do { // JupyterLab may move the focus meanwhile, as after an answer to input()
        await editor.click();
        await editor.press("Control+A");
        await page.keyboard.insertText(code);
    } while ((await lines()) !== code);
}

async function press({ key }) {
    await page.keyboard.press(key);
}

/** What a cell shows. */
async function output({ cell }) {
    return cells().nth(cell).evaluate((node) => {
        const all = (selector) => [...node.querySelectorAll(selector)];
        const text = (selector) => all(selector).map((e) => e.innerText).join("\n");
        return {
            prompt: text(".jp-InputPrompt"),
            text: text(".jp-OutputArea-output pre"),
            stderr: text('[data-mime-type="application/vnd.jupyter.stderr"] pre'),
            images: all(".jp-OutputArea-output img").map((e) => ({ width: e.naturalWidth, height: e.naturalHeight, shown: e.complete })),
            asks: all(".jp-Stdin-prompt").map((e) => e.innerText),
            password: all('.jp-Stdin-input[type="password"]').length > 0,
        };
    });
}

/** The kernel's name and its state, as the notebook's toolbar and the status bar tell them. */
async function kernel() {
    return page.evaluate(() => {
        const panel = document.querySelector(".jp-NotebookPanel:not(.lm-mod-hidden)");
        const bar = [...document.querySelectorAll(".jp-StatusBar-Widget .jp-StatusBar-TextItem")].map((e) => e.innerText);
        return {
            name: panel?.querySelector(".jp-KernelName")?.innerText.trim(),
            status: panel?.querySelector(".jp-Notebook-ExecutionIndicator")?.dataset.status,
            bar: bar.find((text) => text.includes(" | ")),
        };
    });
}

async function toolbar({ command }) {
    await page.locator(`.jp-NotebookPanel:not(.lm-mod-hidden) .jp-NotebookPanel-toolbar jp-button[data-command="${command}"]`).click();
}

/** Presses a button of the dialog that is open. */
async function dialog({ button }) {
    await page.locator(".jp-Dialog-button").filter({ hasText: button }).click();
    await page.locator(".jp-Dialog").waitFor({ state: "detached" });
}

/** What the kernel picker offers. */
async function choices() {
    await page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-KernelName jp-button").click();
    await page.locator(".jp-Dialog select").waitFor();
    return page.locator(".jp-Dialog select").evaluate((node) =>
        [...node.querySelectorAll("optgroup")].map((group) => ({ group: group.label, names: [...group.children].map((e) => e.text) })));
}

/** Marks one of the choices, by its text; the dialog stays. */
async function choose({ name }) {
    await page.locator(".jp-Dialog select").selectOption({ label: name });
}

async function reply({ text }) {
    await page.locator(".jp-Stdin-input").fill(text);
    await page.locator(".jp-Stdin-input").press("Enter");
}

/** What the completer offers. */
async function completions() {
    return page.locator(".jp-Completer:not(.lm-mod-hidden) .jp-Completer-match").allInnerTexts();
}

/** What the tooltip says. */
async function tooltip() {
    return page.locator(".jp-Tooltip:not(.lm-mod-hidden)").allInnerTexts();
}

/** The text of each dialog that is open. */
async function dialogs() {
    return page.locator(".jp-Dialog").allInnerTexts();
}

async function shot({ name }) {
    await page.screenshot({ path: `${shots}/${name}.png` });
}

/** Closes the notebook that is shown, unsaved. */
async function close() {
    const tabs = page.locator("#jp-main-dock-panel .lm-TabBar-tab");
    const before = await tabs.count();
    await page.locator("#jp-main-dock-panel .lm-TabBar-tab.lm-mod-current .lm-TabBar-tabCloseIcon").click();
    const discard = page.locator(".jp-Dialog-button").filter({ hasText: "Discard" });
    await page.waitForFunction((n) => document.querySelector(".jp-Dialog") ||
        document.querySelectorAll("#jp-main-dock-panel .lm-TabBar-tab").length < n, before);
    if (await discard.isVisible()) await discard.click();
    await page.waitForFunction((n) => document.querySelectorAll("#jp-main-dock-panel .lm-TabBar-tab").length < n ||
        document.querySelector(".jp-Launcher"), before);
}

const verbs = { open, create, run, type, press, output, kernel, toolbar, dialog, choices, choose, reply, completions, tooltip, dialogs, shot,
    close };

async function main() {
    const args = ["--disable-dev-shm-usage", ...(process.getuid() === 0 ? ["--no-sandbox"] : [])];
    browser = await chromium.launch({ executablePath, args });
    for await (const line of readline.createInterface({ input: process.stdin })) {
        const { do: verb, ...fields } = JSON.parse(line);
        let answer;
        try {
            answer = { value: (await verbs[verb](fields)) ?? null };
        } catch (error) {
            answer = { error: `${verb}: ${error.message}` };
        }
        process.stdout.write(JSON.stringify(answer) + "\n");
    }
    await browser.close();
}

main();
