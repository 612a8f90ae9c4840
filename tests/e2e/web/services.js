// JupyterLab's own client library at the gateway as at an existing server (SV-01 to SV-27): `services.js TEST`, with the gateway and its key in
// SANDAL_URL and SANDAL_KEY, and a kernelspec in KERNEL. Ends with 0, or with what went wrong. test_jupyterlab.py runs each test.
"use strict";
const assert = require("node:assert/strict");
const { once } = require("node:events");
const { setTimeout } = require("node:timers/promises");
const { WebSocket } = require("ws");
const { KernelAPI, KernelManager, KernelSpecManager, ServerConnection, SessionManager } = require("@jupyterlab/services");

const { SANDAL_URL: url, SANDAL_KEY: token, KERNEL: name } = process.env;
const sockets = []; // of this program

class Socket extends WebSocket {
    constructor(...args) {
        super(...args);
        sockets.push(this);
    }
}

for (const word of ["log", "debug", "warn"]) console[word] = () => {}; // the library's own tales

/** A client of its own: what a browser tab has. */
class Tab {
    constructor() {
        const serverSettings = ServerConnection.makeSettings({
            baseUrl: `${url}/`, wsUrl: `${url.replace("http", "ws")}/`, token, appendToken: true, WebSocket: Socket,
        });
        this.settings = serverSettings;
        this.kernels = new KernelManager({ serverSettings });
        this.sessions = new SessionManager({ serverSettings, kernelManager: this.kernels });
        this.specs = new KernelSpecManager({ serverSettings });
    }

    async ready() {
        await Promise.all([this.kernels.ready, this.sessions.ready, this.specs.ready]);
        return this;
    }

    /** A notebook of that path, with a kernel of its own. */
    async notebook(path) {
        return this.sessions.startNew({ path, type: "notebook", name: path, kernel: { name } });
    }

    dispose() {
        for (const manager of [this.sessions, this.kernels, this.specs]) manager.dispose();
    }
}

/** {reply, iopub}: what came for a cell. */
async function execute(kernel, code, options = {}) {
    const future = kernel.requestExecute({ code, ...options });
    const iopub = [];
    future.onIOPub = (message) => iopub.push(message);
    const reply = await future.done;
    return { reply: reply.content, iopub };
}

const types = (messages) => messages.map((m) => (m.header.msg_type === "status" ? m.content.execution_state : m.header.msg_type));
const text = (messages) => messages.filter((m) => m.header.msg_type === "stream").map((m) => m.content.text).join("");

async function value(kernel, code) {
    const { iopub } = await execute(kernel, code);
    return iopub.find((m) => m.header.msg_type === "execute_result")?.content.data["text/plain"];
}

/** Resolves at the first signal whose argument is wanted. */
function signalled(signal, wanted) {
    return new Promise((resolve) => {
        signal.connect(function listen(_, arg) {
            if (!wanted(arg)) return;
            signal.disconnect(listen);
            resolve(arg);
        });
    });
}

async function v1(method, path, body) {
    const answer = await fetch(url + path, {
        method, headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" }, body: body && JSON.stringify(body),
    });
    const said = await answer.text();
    assert.ok(answer.ok, `${method} ${path}: ${answer.status} ${said}`);
    return said && JSON.parse(said);
}

/** An agent's sandbox, for as long as work takes. */
async function agent(work) {
    const sandbox = await v1("POST", "/v1/sandboxes", { template: name });
    const path = `/v1/sandboxes/${sandbox.id}`;
    try {
        await work(sandbox, (code) => v1("POST", `${path}/run_code`, { code }));
    } finally {
        await v1("DELETE", path);
    }
}

const tests = {
    async "a cell, its streams, results and errors"(tab) {
        const session = await tab.notebook("cell.ipynb");
        const { kernel } = session;
        assert.equal((await kernel.info).status, "ok");
        const ok = await execute(kernel, "import sys\nprint('out')\nprint('err', file=sys.stderr)\n40 + 2");
        assert.deepEqual([ok.reply.status, ok.reply.execution_count], ["ok", 1]);
        assert.equal(text(ok.iopub), "out\nerr\n");
        assert.equal(ok.iopub.find((m) => m.header.msg_type === "execute_result").content.data["text/plain"], "42");
        assert.deepEqual([types(ok.iopub)[0], types(ok.iopub)[1], types(ok.iopub).at(-1)], ["busy", "execute_input", "idle"]);
        const bad = await execute(kernel, "1 / 0");
        assert.deepEqual([bad.reply.status, bad.reply.ename], ["error", "ZeroDivisionError"]);
        assert.ok(types(bad.iopub).includes("error"));
        const plot = await execute(kernel, "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()");
        assert.ok(plot.iopub.find((m) => m.header.msg_type === "display_data").content.data["image/png"].length > 1000);
        await session.shutdown();
        assert.ok(session.isDisposed);
        assert.equal(await KernelAPI.getKernelModel(kernel.id, tab.settings), undefined);
    },

    async "input"(tab) {
        const { kernel } = await tab.notebook("input.ipynb");
        const future = kernel.requestExecute({ code: "print(input('who? '))", allow_stdin: true });
        const printed = [];
        future.onIOPub = (message) => printed.push(message);
        future.onStdin = (message) => {
            assert.deepEqual([message.content.prompt, message.content.password], ["who? ", false]);
            kernel.sendInputReply({ status: "ok", value: "Ada" }, message.header);
        };
        assert.equal((await future.done).content.status, "ok");
        assert.equal(text(printed), "Ada\n");
    },

    async "interrupt"(tab) {
        const { kernel } = await tab.notebook("interrupt.ipynb");
        await execute(kernel, "kept = 1");
        const future = kernel.requestExecute({ code: "import time\nprint('up', flush=True)\ntime.sleep(600)" });
        await new Promise((resolve) => {
            future.onIOPub = (message) => message.header.msg_type === "stream" && resolve();
        });
        await kernel.interrupt();
        assert.equal((await future.done).content.ename, "KeyboardInterrupt");
        assert.equal(await value(kernel, "kept"), "1");
    },

    async "restart"(tab) {
        const { kernel } = await tab.notebook("restart.ipynb");
        await execute(kernel, "gone = 1");
        const seen = [];
        kernel.statusChanged.connect((_, status) => seen.push(status));
        const before = sockets.length;
        const queued = kernel.requestExecute({ code: "import time\ntime.sleep(600)" }).done;
        queued.catch(() => {}); // the library cancels it
        await kernel.restart();
        assert.ok(sockets.length > before, "it makes a new socket");
        const { reply } = await execute(kernel, "gone");
        assert.equal(reply.ename, "NameError");
        assert.equal(reply.execution_count, 1);
        assert.ok(seen.includes("restarting") && !seen.includes("autorestarting") && !seen.includes("dead"), seen.join());
    },

    async "death"(tab) {
        const { kernel } = await tab.notebook("death.ipynb");
        await kernel.info;
        const restarts = signalled(kernel.statusChanged, (status) => status === "autorestarting");
        kernel.requestExecute({ code: "import os\nos._exit(3)" }).done.catch(() => {});
        await restarts;
        if (kernel.connectionStatus !== "connected") await signalled(kernel.connectionStatusChanged, (status) => status === "connected");
        assert.equal(await value(kernel, "40 + 2"), "42");
    },

    async "a socket that is cut"(tab) {
        const { kernel } = await tab.notebook("cut.ipynb");
        await execute(kernel, "kept = 1");
        const cell = kernel.requestExecute({ code: "import time\nprint('up', flush=True)\ntime.sleep(1)\nkept += 1" });
        cell.done.catch(() => {});
        await new Promise((resolve) => {
            cell.onIOPub = (message) => message.header.msg_type === "stream" && resolve();
        });
        const back = signalled(kernel.connectionStatusChanged, (status) => status === "connected");
        const session = (socket) => new URL(socket.url).searchParams.get("session_id");
        sockets.at(-1).terminate(); // while the cell runs
        await back;
        assert.equal(session(sockets.at(-1)), session(sockets.at(-2)));
        assert.equal(await value(kernel, "kept"), "2"); // it waited for the cell, which went on
        assert.equal(kernel.status, "idle");
    },

    async "two clients at one kernel"(tab) {
        const { kernel } = await tab.notebook("two.ipynb");
        const other = await new Tab().ready();
        const second = other.kernels.connectTo({ model: { id: kernel.id, name } });
        await second.info;
        const seen = [];
        second.anyMessage.connect((_, { msg, direction }) => direction === "recv" && seen.push(msg));
        const idle = signalled(second.iopubMessage, (m) => m.content.execution_state === "idle");
        await execute(kernel, "shared = 'theirs'\nprint('seen by all')");
        await idle;
        assert.deepEqual(types(seen), ["busy", "execute_input", "stream", "idle"]); // and no reply
        assert.equal(await value(second, "shared"), "'theirs'");
        assert.equal((await KernelAPI.getKernelModel(kernel.id, tab.settings)).connections, 2);
        other.dispose();
    },

    async "comms"(tab) {
        const { kernel } = await tab.notebook("comm.ipynb");
        await execute(kernel, [
            "def opened(comm, message):",
            "    comm.on_msg(lambda m: comm.send({'sum': sum(m['buffers'][0])}, buffers=[bytes(m['buffers'][0])[::-1]]))",
            "get_ipython().kernel.comm_manager.register_target('adder', opened)",
        ].join("\n"));
        const comm = kernel.createComm("adder");
        const answer = new Promise((resolve) => {
            comm.onMsg = resolve;
        });
        await comm.open().done;
        assert.deepEqual((await kernel.requestCommInfo({ target_name: "adder" })).content.comms, { [comm.commId]: { target_name: "adder" } });
        await comm.send({}, undefined, [new Uint8Array([1, 2, 250])]).done;
        const { content, buffers } = await answer;
        assert.equal(content.data.sum, 253);
        assert.deepEqual([...new Uint8Array(buffers[0].buffer ?? buffers[0])].slice(-3), [250, 2, 1]);
        await comm.close().done;
    },

    async "what the kernel offers"(tab) {
        const { kernel } = await tab.notebook("offers.ipynb");
        await execute(kernel, "wonderful = 1");
        const complete = (await kernel.requestComplete({ code: "wonderf", cursor_pos: 7 })).content;
        assert.deepEqual([complete.status, complete.matches], ["ok", ["wonderful"]]);
        const inspect = (await kernel.requestInspect({ code: "len", cursor_pos: 3, detail_level: 0 })).content;
        assert.ok(inspect.found && inspect.data["text/plain"].includes("number of items"));
        assert.equal((await kernel.requestIsComplete({ code: "for x in y:" })).content.status, "incomplete");
        const history = await kernel.requestHistory({ hist_access_type: "tail", n: 1, output: false, raw: true });
        assert.equal(history.content.status, "ok");
    },

    async "an agent's context is a session"(tab) {
        await agent(async (sandbox, run) => {
            await run("x = 41");
            await tab.sessions.refreshRunning();
            const model = [...tab.sessions.running()].find((s) => s.kernel.id === sandbox.default_context);
            assert.deepEqual([model.type, model.id], ["console", sandbox.default_context]);
            assert.ok(model.name.includes(sandbox.id), model.name);
            const session = tab.sessions.connectTo({ model });
            assert.equal(await value(session.kernel, "x"), "41");
            await execute(session.kernel, "x += 1");
            await session.shutdown(); // it is left, and no more
            assert.equal((await run("x")).text, "42");
        });
    },

    async "an agent's context is a kernelspec"(tab) {
        await agent(async (sandbox, run) => {
            await run("x = 41");
            await tab.specs.refreshSpecs();
            const spec = tab.specs.specs.kernelspecs[`ctx-${sandbox.default_context}`];
            assert.match(spec.display_name, new RegExp(`^Sandal: .*\\(${sandbox.id}\\)$`));
            const kernel = await tab.kernels.startNew({ name: spec.name });
            assert.equal(kernel.id, sandbox.default_context);
            assert.equal(await value(kernel, "x"), "41");
            await kernel.shutdown();
            assert.equal((await run("x")).text, "41");
        });
        assert.equal(tab.specs.specs.default, Object.keys(tab.specs.specs.kernelspecs)[0]);
    },

    async "a session is renamed and found again"(tab) {
        const session = await tab.notebook("before.ipynb");
        await session.setPath("after.ipynb");
        await session.setName("after");
        const other = await new Tab().ready();
        assert.deepEqual((await other.sessions.findByPath("after.ipynb")).kernel.id, session.kernel.id);
        assert.equal((await other.sessions.findById(session.id)).name, "after");
        const { id } = session.kernel;
        await session.kernel.info;
        await session.changeKernel({ name });
        assert.notEqual(session.kernel.id, id);
        await other.sessions.refreshRunning();
        assert.equal((await other.sessions.findById(session.id)).kernel.id, session.kernel.id);
        other.dispose();
        await session.shutdown();
        await tab.sessions.refreshRunning();
        assert.equal(await tab.sessions.findByPath("after.ipynb"), undefined);
    },

    /* Says "up", and waits for a line: meanwhile the gateway is killed and started. */
    async "a gateway that is killed"(tab) {
        const { kernel } = await tab.notebook("killed.ipynb");
        await execute(kernel, "kept = 1");
        const seen = [], failures = [];
        kernel.statusChanged.connect((_, status) => seen.push(status));
        tab.kernels.connectionFailure.connect((_, error) => failures.push(error.response?.status ?? "network"));
        process.stdout.write("up\n");
        let over = false;
        once(process.stdin, "data").then(() => (over = true));
        for (let good = false; !(over && good); ) {
            good = await tab.kernels.refreshRunning().then(() => true, () => false);
            if (good) assert.ok([...tab.kernels.running()].some((k) => k.id === kernel.id), "a list lacks it");
            await setTimeout(20); // refused connections cost nothing, and would be a busy loop
        }
        if (kernel.connectionStatus !== "connected") await kernel.reconnect(); // by itself it would wait for up to half a minute
        assert.equal(await value(kernel, "kept"), "1");
        assert.ok(failures.length > 0 && failures.every((f) => f === 503 || f === "network"), failures.join());
        assert.ok(!seen.includes("dead") && !seen.includes("autorestarting"), seen.join());
        process.stdin.destroy();
    },
};

async function main() {
    if (process.argv[2] === "--list") {
        process.stdout.write(JSON.stringify(Object.keys(tests)));
        return;
    }
    const tab = await new Tab().ready();
    try {
        await tests[process.argv[2]](tab);
    } finally {
        await tab.kernels.shutdownAll();
        tab.dispose();
    }
}

main().then(
    () => process.exit(0), // the library's timers go on
    (error) => {
        process.stderr.write(`${error.stack}\n`);
        process.exit(1);
    },
);
