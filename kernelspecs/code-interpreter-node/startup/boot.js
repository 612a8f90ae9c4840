// Run by IJavaScript as the first cell of a session.
require(require("path").join(process.env.SANDAL_NODE_STARTUP, "session.js"));
