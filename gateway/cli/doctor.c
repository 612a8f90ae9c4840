/* Findings and remedies. The keeper finds out by trying and says why not; here is what a person can
 * do about it. */
#include "gateway/cli/doctor.h"

#include <string.h>

#include "gateway/base/isolation.h"
#include "gateway/base/mem.h"
#include "gateway/base/str.h"

/* The first row whose name is that and whose words are in the reason; NULL fits all. */
typedef struct kg_remedy {
    const char *name;
    const char *words;
    int root; /* 1 root only, 0 others only, -1 both */
    const char *text;
} kg_remedy_t;

#define USERNS                                                                                     \
    "allow user namespaces: sysctl kernel.unprivileged_userns_clone=1 on Debian, "                 \
    "kernel.apparmor_restrict_unprivileged_userns=0 (or a profile for bwrap) on Ubuntu, and "      \
    "user.max_user_namespaces above 0"
#define DELEGATE "give the daemon a control group of its own: a systemd service with Delegate=yes"
#define DELEGATE_USER                                                                              \
    "start it with: systemd-run --user --scope -p Delegate=yes sandald serve; or run it as root"

/* Docker's words; what it covers of /proc keeps every other process from a /proc of its own. */
#define CONTAINER                                                                                  \
    "in a container, give it --cap-add SYS_ADMIN --security-opt systempaths=unconfined"

static const kg_remedy_t REMEDIES[] = {
    {"namespace", NULL, 0, "run the daemon as root; its gateway gives up all rights at once"},
    {"namespace", "overlay", 1, "the kernel needs overlayfs (modprobe overlay)"},
    {"namespace", "namespace", 1, "in a container, give it --privileged, or use another isolation"},
    {"namespace", NULL, 1, CONTAINER},
    {"bubblewrap", "uid map: Invalid", 1, "choose uid_base and uid_count below 2147483648"},
    {"bubblewrap", "bwrap (package", -1, "install the package bubblewrap"},
    {"bubblewrap", "mount proc", -1, CONTAINER},
    {"bubblewrap", NULL, -1, USERNS},
    {"process", KG_LAUNCHER_NOT_APART, 0,
     "a kernel with Landlock's ABI 6 (Linux 6.12), or run the daemon as root; till then "
     "bubblewrap, "
     "or sandboxes of one owner only"},
    {"process", "andlock", -1,
     "a kernel with Landlock (5.13 or later, lsm=landlock among its LSMs)"},
    {"runc", NULL, 0, "run the daemon as root"},
    {"runc", "(package", 1, "install the package runc"},
    {"runc", NULL, 1, "runc's own words; in a container, give it --privileged"},
    {"gvisor", NULL, 0, "run the daemon as root"},
    {"gvisor", "(package", 1, "install the package runsc; on Debian 12 from bookworm-backports"},
    {"gvisor", "too old", 1, "install a newer runsc; on Debian 12 from bookworm-backports"},
    {"gvisor", NULL, 1, CONTAINER "; else these are runsc's own words"},
    {"memory", NULL, 1, DELEGATE},
    {"memory", NULL, 0, DELEGATE_USER},
    {"pids", NULL, 1, DELEGATE},
    {"pids", NULL, 0, DELEGATE_USER},
    {"cpu", NULL, 1, DELEGATE},
    {"cpu", NULL, 0, DELEGATE_USER},
    {"freeze", NULL, 1, DELEGATE},
    {"freeze", NULL, 0, DELEGATE_USER},
    {"paused memory", "swap", -1, "add swap, or zram (modprobe zram)"},
    {"kill", NULL, 1, DELEGATE},
    {"kill", NULL, 0, DELEGATE_USER},
    {"account", NULL, 1, DELEGATE},
    {"account", NULL, 0, DELEGATE_USER},
    {"disk", NULL, 0, "run the daemon as root"},
    {"disk", "mkfs.btrfs", 1, "install the package btrfs-progs"},
    {"disk", "loop", 1, "let the daemon use loop devices (/dev/loop-control, modprobe loop)"},
    {"disk", "No space", 1, "free some of the disk that state_dir is on, or set volumes.bytes"},
    {"disk", NULL, 1, "btrfs on loop devices is the usual way: btrfs-progs, modprobe btrfs loop"},
    {"egress", "/dev/net/tun", 0,
     "let this user open it: chmod 666 /dev/net/tun, modprobe tun; or run the daemon as root"},
    {"egress", "slirp4netns is not", 0, "install the package slirp4netns"},
    {"egress", "nft is not", 0, "install the package nftables"},
    {"egress", "IPv4 alone", 0, "IPv6 needs a daemon that runs as root"},
    {"egress", "user namespace", 0, USERNS},
    {"egress", NULL, 0, "run the daemon as root"},
    {"egress", "default route", 1, "sandboxes reach what the host reaches: give it a route"},
    {"egress", "nft", 1, "install the package nftables"},
    {"egress", NULL, 1, "nftables with NAT and forwarding is needed (modprobe nf_tables veth)"},
    {"checkpoint", NULL, -1, "for when there are: criu, 4.2 or later from kernel 6.16 on"},
    {"overlay", "No such device", -1, "the kernel needs overlayfs (modprobe overlay)"},
    {"overlay", NULL, 0, USERNS},
    {"overlay", NULL, 1, CONTAINER},
};

static const char *remedy(const kg_doctor_t *doctor, const char *name, const char *reason)
{
    for (size_t i = 0; i < KG_ARRAY_LEN(REMEDIES); i++) {
        const kg_remedy_t *row = &REMEDIES[i];
        if (strcmp(row->name, name) == 0 && (!row->words || strstr(reason, row->words)) &&
            (row->root < 0 || row->root == (int)doctor->is_root)) {
            return row->text;
        }
    }
    return "";
}

kg_doctor_line_t *kg_doctor_add(kg_doctor_t *doctor, kg_finding_t finding, const char *name)
{
    if (doctor->count == KG_DOCTOR_LINES_MAX) {
        return NULL;
    }
    kg_doctor_line_t *line = &doctor->lines[doctor->count++];
    *line = (kg_doctor_line_t){.finding = finding};
    (void)kg_format(line->name, sizeof(line->name), "%s", name);
    return line;
}

void kg_doctor_say(kg_doctor_t *doctor, kg_finding_t finding, const char *name, const char *detail)
{
    kg_doctor_line_t *line = kg_doctor_add(doctor, finding, name);
    if (!line) {
        return;
    }
    (void)kg_format(line->detail, sizeof(line->detail), "%s", detail);
    if (finding != KG_FINDING_OK) {
        (void)kg_format(line->remedy, sizeof(line->remedy), "%s", remedy(doctor, name, detail));
    }
}

/* As the gateway has it: what costs more than it must isn't taken unasked. */
static bool by_name_alone(const char *launcher)
{
    return strcmp(launcher, "runc") == 0 || strcmp(launcher, "gvisor") == 0;
}

void kg_doctor_launchers(kg_doctor_t *doctor,
                         const kg_kp_launchers_reply_t *table,
                         const char *wish,
                         const char *least)
{
    unsigned best = 0;
    bool is_auto = strcmp(wish, "auto") == 0;
    int floor = kg_isolation_rank(least); /* -1: auto */

    for (uint32_t i = 0; i < table->count && i < KG_KP_LAUNCHERS; i++) {
        const kg_kp_launcher_row_t *row = &table->rows[i];
        bool apart = strstr(row->reason, KG_LAUNCHER_NOT_APART) == NULL;
        kg_finding_t found = apart ? KG_FINDING_OK : KG_FINDING_LIMITED;
        kg_doctor_say(doctor, row->available ? found : KG_FINDING_NO, row->name, row->reason);
        bool takes = is_auto ? row->rank > best && kg_isolation_rank(row->name) >= floor &&
                                   (!by_name_alone(row->name) || strcmp(row->name, least) == 0)
                             : strcmp(row->name, wish) == 0;
        if (row->available && takes) {
            best = row->rank;
            doctor->good = true;
            (void)kg_format(doctor->isolation, sizeof(doctor->isolation), "%s", row->name);
        }
    }
}

void kg_doctor_features(kg_doctor_t *doctor, const kg_kp_features_reply_t *table)
{
    for (uint32_t i = 0; i < table->count && i < KG_KP_FEATURES; i++) {
        char detail[200];
        const kg_kp_feature_row_t *row = &table->rows[i];
        kg_finding_t finding = KG_FINDING_NO;
        if (row->available) {
            finding = row->reason[0] ? KG_FINDING_LIMITED : KG_FINDING_OK;
        }
        (void)kg_format(detail, sizeof(detail), "%s%s%s", row->how,
                        row->how[0] && row->reason[0] ? ": " : "", row->reason);
        kg_doctor_say(doctor, finding, row->name, detail[0] ? detail : "not there");
    }
}

static const char *word(kg_finding_t finding)
{
    static const char *const words[] = {"ok", "limited", "no"};
    return words[finding];
}

void kg_doctor_print(const kg_doctor_t *doctor, FILE *out)
{
    for (size_t i = 0; i < doctor->count; i++) {
        const kg_doctor_line_t *line = &doctor->lines[i];
        (void)fprintf(out, line->detail[0] ? "%-8s %-16s %s\n" : "%-8s %s%s\n", word(line->finding),
                      line->name, line->detail);
        if (line->remedy[0]) {
            (void)fprintf(out, "%-8s %-16s -> %s\n", "", "", line->remedy);
        }
    }
    if (doctor->good) {
        (void)fprintf(out, "\nSandboxes get isolation %s here unless they ask for another.\n",
                      doctor->isolation);
    } else {
        (void)fprintf(out, "\nThere is no isolation here for sandboxes that don't name one. See "
                           "above for what to change; `none` isolates nothing.\n");
    }
}

json_t *kg_doctor_json(const kg_doctor_t *doctor)
{
    json_t *checks = json_array();
    for (size_t i = 0; checks && i < doctor->count; i++) {
        const kg_doctor_line_t *line = &doctor->lines[i];
        json_t *item =
            json_pack("{s:s, s:s, s:s, s:s}", "name", line->name, "state", word(line->finding),
                      "detail", line->detail, "remedy", line->remedy);
        if (!item || json_array_append_new(checks, item) < 0) {
            json_decref(checks);
            checks = NULL;
        }
    }
    if (!checks) {
        return NULL;
    }
    return json_pack("{s:b, s:s?, s:b, s:o}", "ok", doctor->good, "isolation",
                     doctor->good ? doctor->isolation : NULL, "root", doctor->is_root, "checks",
                     checks);
}
