/* cli: the option table. A row here is a command line option, a key of the file, a variable, a line
 * of --help and of the shell completions; sandald-config(5) is checked against it by
 * tests/unit/cli/test_config.c. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "gateway/cli/config.h"
#include "gateway/tool/render.h"

#define AT(field) offsetof(kg_config_t, field)
#define KIB UINT64_C(1024)
#define MIB (KIB * 1024)
#define GIB (MIB * 1024)

#define STRING(key, field, preset, metavar, help)                                                  \
    {                                                                                              \
        key, KG_OPTION_STRING, AT(field), preset, 0, 0, metavar, NULL, help                        \
    }
#define LIST(key, field, preset, metavar, help)                                                    \
    {                                                                                              \
        key, KG_OPTION_LIST, AT(field), preset, 0, 0, metavar, NULL, help                          \
    }
#define BOOL(key, field, preset, help)                                                             \
    {                                                                                              \
        key, KG_OPTION_BOOL, AT(field), preset, 0, 0, NULL, NULL, help                             \
    }
#define ENUM(key, field, preset, choices, help)                                                    \
    {                                                                                              \
        key, KG_OPTION_ENUM, AT(field), preset, 0, 0, "NAME", choices, help                        \
    }
#define COUNT(key, field, preset, min, max, help)                                                  \
    {                                                                                              \
        key, KG_OPTION_COUNT, AT(field), preset, min, max, "N", NULL, help                         \
    }
#define BYTES(key, field, preset, min, max, help)                                                  \
    {                                                                                              \
        key, KG_OPTION_BYTES, AT(field), preset, min, max, "BYTES", NULL, help                     \
    }
#define SECONDS(key, field, preset, max, help)                                                     \
    {                                                                                              \
        key, KG_OPTION_SECONDS, AT(field), preset, 0, max, "SECONDS", NULL, help                   \
    }

const kg_option_t kg_options[] = {
    LIST("listen",
         listen,
         "127.0.0.1:8717",
         "ADDRESS",
         "Where to listen: HOST:PORT, [IPV6]:PORT or unix:PATH; may be given again"),
    STRING("state_dir",
           state_dir,
           NULL,
           "DIR",
           "Database, run logs, sandbox files and the first key (default: /var/lib/sandal as root, "
           "else "
           "$XDG_STATE_HOME/sandal)"),
    STRING(
        "runtime_dir",
        runtime_dir,
        NULL,
        "DIR",
        "Kernel sockets; a short path, emptied at start (default: below /run/sandal as root, else "
        "below $XDG_RUNTIME_DIR or /tmp)"),
    LIST("template_dirs",
         template_dirs,
         NULL,
         "DIR",
         "Folders that hold one folder a template (default: those that ship with sandald)"),
    LIST("kernelspec_dirs",
         kernelspec_dirs,
         NULL,
         "DIR",
         "Folders that hold one folder a Jupyter kernelspec; each becomes a template too. "
         "`jupyter`: "
         "Jupyter's own folders on this host"),
    ENUM(
        "network",
        network,
        "egress",
        "egress|none",
        "Network of sandboxes made without a wish of their own; `egress` reaches public addresses, "
        "and is `none` where this host has no egress"),
    ENUM("isolation",
         isolation,
         "auto",
         "auto|none|process|bubblewrap|runc|namespace|gvisor",
         "Isolation of sandboxes made without a wish of their own, the least that will do; `auto`: "
         "the best that works here; `none` means no isolation and is taken by name only"),
    ENUM("isolation_min",
         isolation_min,
         "auto",
         "auto|none|process|bubblewrap|runc|namespace|gvisor",
         "The weakest isolation that a client may ask for; `auto`: process, and none only where "
         "`isolation` is none"),
    BOOL("no_auth",
         no_auth,
         "false",
         "Serve without keys; on loopback addresses and unix sockets only"),
    STRING("gateway_user",
           gateway_user,
           "sandal",
           "NAME",
           "As root: the user that the gateway process runs as"),
    COUNT("uid_base",
          uid_base,
          "1879048192",
          65536,
          4000000000U,
          "As root: first of the user ids that sandboxes get"),
    COUNT("uid_count",
          uid_count,
          "268435456",
          65536,
          2147483648U,
          "As root: how many user ids there are for sandboxes; each takes 65536"),
    STRING("tls.cert", tls.cert, NULL, "FILE", "Serve TLS with this PEM certificate chain"),
    STRING("tls.key", tls.key, NULL, "FILE", "Private key of tls.cert, readable by gateway_user"),
    LIST("cors.origins",
         cors.origins,
         NULL,
         "ORIGIN",
         "Web origins that may call from a browser, such as https://app.example.org; `*` for all"),
    LIST("allowed_hosts",
         allowed_hosts,
         NULL,
         "HOST",
         "Host headers taken besides loopback names when no_auth is on"),
    LIST(
        "network_allow",
        network_allow,
        NULL,
        "CIDR",
        "ADDRESS/BITS that sandboxes with egress reach besides public addresses, such as that of a "
        "package mirror; an address of this host by its whole length alone"),
    STRING("proxy_listen",
           proxy_listen,
           "127.0.0.1:8718",
           "ADDRESS",
           "Where exposed ports are served: HOST:PORT, [IPV6]:PORT, or off"),
    STRING("proxy_domain",
           proxy_domain,
           NULL,
           "DOMAIN",
           "Exposed ports have names below it: PORT-SANDBOX.DOMAIN; its wildcard record leads to "
           "proxy_listen or to what stands before it"),
    STRING("proxy_url",
           proxy_url,
           NULL,
           "URL",
           "How clients reach proxy_listen, where something stands before it: https://HOST[:PORT]"),
    LIST("sandbox_files",
         sandbox_files,
         NULL,
         "PATH",
         "As root: settings of package clients and the like (/etc/pip.conf, /etc/apt/apt.conf.d, a "
         "CA "
         "file) that every sandbox with a root of its own sees at the same path; read at start"),
    LIST("sandbox_env",
         sandbox_env,
         NULL,
         "NAME",
         "Variables that every process in every sandbox has: NAME=VALUE, or NAME to pass on "
         "sandald's own; templates and clients win over them"),
    ENUM("log.level", log.level, "info", "debug|info|warn|error", "Least level that is logged"),
    ENUM("log.format", log.format, "text", "text|json", "One line an event, as text or JSON"),
    BYTES("limits.body_bytes", limits.body_bytes, "16MiB", KIB, GIB, "Largest JSON request body"),
    BYTES("limits.frame_bytes",
          limits.frame_bytes,
          "16MiB",
          KIB,
          GIB,
          "Largest WebSocket message from a client"),
    BYTES("limits.code_bytes", limits.code_bytes, "8MiB", 1, GIB, "Largest `code` of one run"),
    BYTES(
        "limits.cmd_bytes", limits.cmd_bytes, "64KiB", 1, 64 * KIB, "Largest `cmd` of one `exec`"),
    COUNT("limits.connections",
          limits.connections,
          "10000",
          1,
          1000000,
          "Client connections at once"),
    COUNT("limits.sandboxes", limits.sandboxes, "256", 1, 100000, "Sandboxes at once"),
    COUNT("limits.contexts", limits.contexts, "16", 1, 1024, "Contexts in one sandbox"),
    COUNT(
        "limits.processes", limits.processes, "256", 1, 100000, "Commands at once in one sandbox"),
    COUNT("limits.sandbox_memory_mib",
          limits.sandbox_memory_mib,
          "0",
          0,
          16777216,
          "Highest `limits.memory_mib` of a sandbox, and what those without one get; 0 = none"),
    COUNT("limits.sandbox_cpus",
          limits.sandbox_cpus,
          "0",
          0,
          4096,
          "Highest `limits.cpus` of a sandbox, likewise"),
    COUNT("limits.sandbox_pids",
          limits.sandbox_pids,
          "0",
          0,
          4194304,
          "Highest `limits.pids` of a sandbox, likewise"),
    COUNT("limits.sandbox_disk_mib",
          limits.sandbox_disk_mib,
          "0",
          0,
          268435456,
          "Highest `limits.disk_mib` of a sandbox, likewise"),
    COUNT("limits.sandbox_open_files",
          limits.sandbox_open_files,
          "0",
          0,
          1073741824,
          "Highest `limits.open_files` of a sandbox; 0 = what the daemon itself may have"),
    COUNT("limits.queue", limits.queue, "64", 1, 100000, "Runs waiting in one context"),
    BYTES("limits.output_bytes",
          limits.output_bytes,
          "256MiB",
          KIB,
          64 * GIB,
          "Highest `limits.output_bytes` that a run may ask for"),
    BYTES("limits.result_bytes",
          limits.result_bytes,
          "256MiB",
          KIB,
          64 * GIB,
          "Highest `limits.result_bytes` that a run may ask for"),
    COUNT("limits.events",
          limits.events,
          "10000000",
          16,
          1000000000,
          "Highest `limits.events` that a run may ask for"),
    COUNT("limits.runs_per_socket",
          limits.runs_per_socket,
          "256",
          1,
          100000,
          "Runs that one WebSocket follows at once"),
    COUNT("limits.calls_per_socket",
          limits.calls_per_socket,
          "256",
          1,
          100000,
          "Calls of one WebSocket that wait for their answers"),
    BYTES("limits.unread_bytes",
          limits.unread_bytes,
          "8MiB",
          64 * KIB,
          GIB,
          "Answers that one WebSocket may leave unread"),
    BYTES("budgets.sandbox_log_bytes",
          budgets.sandbox_log_bytes,
          "64MiB",
          MIB,
          1024 * GIB,
          "Disk for the finished runs of one sandbox"),
    BYTES("budgets.log_bytes",
          budgets.log_bytes,
          "1GiB",
          MIB,
          1024 * GIB,
          "Disk for the finished runs of the daemon"),
    ENUM("volumes.backend",
         volumes.backend,
         "auto",
         "auto|btrfs|loop|tmpfs|none",
         "As root: what holds the files of sandboxes and their disk limits; `auto` is the first of "
         "btrfs, loop and none that works here"),
    BYTES("volumes.bytes",
          volumes.bytes,
          "0",
          0,
          GIB * 1024 * 1024,
          "As root: size of the sparse image STATE/volumes.img that btrfs volumes are in; 0 = four "
          "fifths of what is free when it is made"),
    ENUM("pools.fill",
         pools.fill,
         "auto",
         "auto|start|demand|off",
         "Warm sandboxes, kept ready so that a create answers in milliseconds: from the start on, "
         "from "
         "a template's first create on, or never; `auto`: `start` as root on a host with 8 GiB or "
         "more, else `demand`"),
    COUNT("pools.memory_mib",
          pools.memory_mib,
          "0",
          0,
          16777216,
          "Memory of all warm sandboxes; 0 = an eighth of the host's"),
    LIST("pools.sizes",
         pools.sizes,
         NULL,
         "TEMPLATE:MIN-MAX",
         "How many warm sandboxes of a template, instead of what its template.json says; "
         "TEMPLATE:0 for none; TEMPLATE/zygote:MIN-MAX or TEMPLATE/spawn:MIN-MAX for those whose "
         "kernels are started that way"),
    COUNT("zygotes.max",
          zygotes.max,
          "8",
          0,
          1024,
          "Processes which have imported everything, for kernels to be forked from, at once; where "
          "there would be more, kernels are started from scratch; 0 = none"),
    BOOL("zygotes.per_owner",
         zygotes.per_owner,
         "false",
         "Kernels that are forked from a process which has imported everything are not forked from "
         "the same one for two owners; none are kept warm then"),
    SECONDS("zygotes.idle",
            zygotes.idle,
            "600",
            31536000,
            "Such a process ends when it has had no kernels for so long; 0 = never"),
    SECONDS(
        "jupyter.kernel_timeout",
        jupyter.kernel_timeout,
        "3600",
        31536000,
        "The sandbox of a kernel that a Jupyter client started is paused or ended after so long "
        "idle; 0 = never"),
    ENUM("jupyter.kernel_on_timeout",
         jupyter.kernel_on_timeout,
         "auto",
         "auto|pause|kill",
         "What happens to it then; auto pauses where the host can"),
    LIST("jupyter.env",
         jupyter.env,
         "KERNEL_*",
         "NAME",
         "Variables of Jupyter clients that their kernels get, by name, or by beginning with * "
         "behind it"),
    BYTES("jupyter.unread_bytes",
          jupyter.unread_bytes,
          "32MiB",
          64 * KIB,
          GIB,
          "Output that a Jupyter client may leave unread, beside its largest message"),
    SECONDS(
        "jupyter.reconnect",
        jupyter.reconnect,
        "120",
        86400,
        "A Jupyter client whose connection has gone gets what it missed when it is back within so "
        "long; 0 = never"),
    BYTES("jupyter.missed_bytes",
          jupyter.missed_bytes,
          "64MiB",
          64 * KIB,
          GIB,
          "Output that is kept for such a client"),
    COUNT("jupyter.queue",
          jupyter.queue,
          "1000",
          1,
          100000,
          "Cells of Jupyter clients waiting in one context"),
    BYTES(
        "jupyter.queue_bytes", jupyter.queue_bytes, "32MiB", 64 * KIB, GIB, "All of them together"),
    COUNT("jupyter.sessions",
          jupyter.sessions,
          "1000",
          0,
          100000,
          "Sessions that Jupyter clients of one owner may have made at once"),
    COUNT("jupyter.connections",
          jupyter.connections,
          "64",
          0,
          1024,
          "Connection files for Jupyter clients at once"),
    COUNT("jupyter.owner_connections",
          jupyter.owner_connections,
          "32",
          0,
          1024,
          "Connection files of one owner"),
    COUNT("jupyter.context_connections",
          jupyter.context_connections,
          "8",
          0,
          64,
          "Connection files of one context"),
    BOOL("jupyter.connect_tcp",
         jupyter.connect_tcp,
         "false",
         "Connection files may name TCP ports on loopback, which all local users can reach"),
    STRING("tools.template",
           tools.template_name,
           "",
           "NAME",
           "Template of the sandboxes that sessions of tool calls make (default: that of other "
           "sandboxes)"),
    COUNT("tools.sessions",
          tools.sessions,
          "100",
          0,
          100000,
          "Sandboxes of sessions that one owner has at once; 0 = tool calls name their sandbox"),
    SECONDS("tools.session_timeout",
            tools.session_timeout,
            "3600",
            31536000,
            "The sandbox of a session is paused or ended after so long idle; 0 = never"),
    ENUM("tools.session_on_timeout",
         tools.session_on_timeout,
         "kill",
         "auto|pause|kill",
         "What happens to it then; auto pauses where the host can"),
    COUNT("tools.max_tokens",
          tools.max_tokens,
          "8192",
          KG_TOOL_TOKENS_MIN,
          KG_TOOL_TOKENS_MAX,
          "Text of an answer to a tool call that asks for no other size, in tokens as estimated"),
    BYTES("tools.call_bytes", tools.call_bytes, "1MiB", KIB, 64 * MIB, "A tool call of a model"),
    BYTES("tools.output_bytes",
          tools.output_bytes,
          "1MiB",
          KIB,
          GIB,
          "What the run of a tool call may print to each stream; more is cut"),
    BYTES("tools.result_bytes",
          tools.result_bytes,
          "8MiB",
          KIB,
          GIB,
          "All results of the run of a tool call; more is left out"),
    COUNT("tools.images",
          tools.images,
          "8",
          0,
          KG_TOOL_IMAGES_CEILING,
          "Pictures in one answer to a tool call"),
    BYTES("tools.image_bytes",
          tools.image_bytes,
          "5000000",
          KIB,
          64 * MIB,
          "One of these pictures, in base64; a larger one is not shown"),
    SECONDS("timeouts.run",
            timeouts.run,
            "300",
            31536000,
            "A run without a `timeout` of its own; 0 = none"),
    SECONDS("timeouts.idle",
            timeouts.idle,
            "3600",
            31536000,
            "A sandbox without a `timeout` of its own ends after so long idle"),
    SECONDS("timeouts.interrupt_grace",
            timeouts.interrupt_grace,
            "2",
            3600,
            "From the interrupt to the kill of a kernel that ignores it"),
    SECONDS(
        "timeouts.kernel_start", timeouts.kernel_start, "60", 3600, "A kernel must answer within"),
    SECONDS("timeouts.request",
            timeouts.request,
            "30",
            3600,
            "A client must have sent the body of its request within"),
    SECONDS("timeouts.create", timeouts.create, "30", 3600, "A sandbox must have been made within"),
    SECONDS("timeouts.orphan",
            timeouts.orphan,
            "600",
            86400,
            "Sandboxes live on for so long when the daemon was killed, for its next start to find"),
    SECONDS("timeouts.header",
            timeouts.header,
            "10",
            3600,
            "A client must have sent the head of its request within"),
    SECONDS("timeouts.files",
            timeouts.files,
            "600",
            86400,
            "A list, a removal or a move of files, with what is below, must be done within; 0 = "
            "none"),
    SECONDS("timeouts.stall",
            timeouts.stall,
            "300",
            86400,
            "A client that takes nothing of its answer for so long is cut off"),
    SECONDS("timeouts.keepalive",
            timeouts.keepalive,
            "75",
            3600,
            "An idle HTTP connection is closed after"),
    SECONDS("timeouts.ping",
            timeouts.ping,
            "15",
            3600,
            "Sign of life on silent streams and WebSockets"),
    SECONDS("timeouts.drain",
            timeouts.drain,
            "10",
            3600,
            "At a stop, running runs may go on for so long"),
    SECONDS("timeouts.retain",
            timeouts.retain,
            "300",
            31536000,
            "A finished run stays readable for at least, unless the budget is full"),
};

const size_t kg_options_count = KG_ARRAY_LEN(kg_options);

void kg_option_flag(const kg_option_t *option, char *ret, size_t cap)
{
    snprintf(ret, cap, "--%s", option->key);
    for (char *p = ret; *p != '\0'; p++) {
        if (*p == '.' || *p == '_') {
            *p = '-';
        }
    }
}

void kg_option_variable(const kg_option_t *option, char *ret, size_t cap)
{
    snprintf(ret, cap, "SANDAL_%s", option->key);
    for (char *p = ret; *p != '\0'; p++) {
        if (*p == '.') {
            *p = '_';
        } else if (*p >= 'a' && *p <= 'z') {
            *p = (char)(*p - 'a' + 'A');
        }
    }
}

const kg_option_t *kg_option_find(const char *key)
{
    for (size_t i = 0; i < kg_options_count; i++) {
        if (strcmp(kg_options[i].key, key) == 0) {
            return &kg_options[i];
        }
    }
    return NULL;
}
