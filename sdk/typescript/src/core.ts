// What all parts of one client share.
import { Http } from "./http.js";
import { SocketPool } from "./socket.js";
import { settingsOf, type SandalOptions } from "./settings.js";

/** @internal */
export class Core {
  readonly http: Http;
  readonly sockets: SocketPool;

  constructor(options: SandalOptions) {
    const settings = settingsOf(options);
    this.http = new Http(settings);
    this.sockets = new SocketPool(settings);
  }
}
