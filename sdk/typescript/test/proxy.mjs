// A proxy in front of the gateway that does what networks do to connections.
import net from "node:net";

const target = new URL(process.env.SANDAL_URL);

/**
 * `cut.down` and `cut.up`: bytes towards the client and towards the gateway after which the connection at hand is cut, once; undefined:
 * never. `cut.hole`: bytes go nowhere, and nobody is told.
 */
export async function proxy(cut = {}) {
  const state = { cut, cuts: 0, down: 0, up: 0, connections: 0 };
  const sockets = new Set();

  function pass(from, to, way) {
    from.on("data", (data) => {
      if (state.cut.hole) return;
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
