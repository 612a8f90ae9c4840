// A proxy in front of the gateway that does what networks do to connections.
import net from "node:net";

const target = new URL(process.env.SANDAL_URL);

/**
 * `cut.down` and `cut.up`: bytes towards the client and towards the gateway after which the connection at hand is cut, once; undefined:
 * never. `cut.upEach`: so many towards the gateway on every connection. `cut.answers`: pieces of answers that come through before one is lost
 * with its connection. `cut.hole`: bytes go nowhere, and nobody is told.
 */
export async function proxy(cut = {}) {
  const state = { cut, cuts: 0, down: 0, up: 0, connections: 0 };
  const sockets = new Set();

  function pass(from, to, way) {
    let passed = 0;
    from.on("data", (data) => {
      if (state.cut.hole) return;
      passed += data.length;
      const isLost = way === "down" && state.cut.answers !== undefined && state.cut.answers-- === 0;
      if (isLost) state.cut.answers = undefined;
      if (isLost || (way === "up" && passed > state.cut.upEach)) {
        state.cuts++;
        from.pause();
        to.write("", () => { // what went before arrives
          from.destroy();
          to.destroy();
        });
        return;
      }
      const left = state.cut[way];
      state[way] += data.length;
      if (left !== undefined && data.length >= left) {
        state.cut[way] = undefined;
        state.cuts++;
        to.write(data.subarray(0, left), () => {
          from.destroy();
          to.destroy();
        });
        return;
      }
      if (left !== undefined) state.cut[way] -= data.length;
      if (!to.write(data)) {
        from.pause();
        to.once("drain", () => from.resume());
      }
    });
    from.on("error", () => {});
    from.on("close", () => to.destroy());
  }

  const server = net.createServer((client) => {
    state.connections++;
    const gateway = net.connect(Number(target.port), target.hostname);
    for (const socket of [client, gateway]) {
      socket.setNoDelay(true);
      sockets.add(socket);
      socket.once("close", () => sockets.delete(socket));
    }
    pass(client, gateway, "up");
    pass(gateway, client, "down");
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    state,
    url: `http://127.0.0.1:${server.address().port}`,
    close() {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}
