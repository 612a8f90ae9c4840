/* The bundle's config.json. All words in it are ours or of the id's alphabet, so nothing is
 * escaped. Namespaces, mounts and covers are those of the launcher `namespace`; the seccomp filter
 * is loaded by sandal-init into what it starts. */
#include "gateway/sandbox/oci.h"

#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "gateway/base/str.h"
#include "gateway/sandbox/caps.h"
#include "gateway/sandbox/init/args.h"
#include "gateway/sandbox/ns.h"
#include "gateway/sandbox/ns_mask.h"

#define NOFILE_LEAST 1024U /* for sandal-init itself */

/* What sandal-init has: enough to become the sandbox's user, or its root, and one more, or that
 * root, which has its number, might trace it. */
#define CAPS (KG_CAPS_ROOT | KG_CAP_BIT(CAP_SYS_PTRACE))

static const struct {
    unsigned bit;
    const char *name;
} caps[] = {
    {CAP_CHOWN, "CHOWN"},
    {CAP_DAC_OVERRIDE, "DAC_OVERRIDE"},
    {CAP_FOWNER, "FOWNER"},
    {CAP_FSETID, "FSETID"},
    {CAP_KILL, "KILL"},
    {CAP_NET_BIND_SERVICE, "NET_BIND_SERVICE"},
    {CAP_SETFCAP, "SETFCAP"},
    {CAP_SETGID, "SETGID"},
    {CAP_SETPCAP, "SETPCAP"},
    {CAP_SETUID, "SETUID"},
    {CAP_SYS_CHROOT, "SYS_CHROOT"},
    {CAP_SYS_PTRACE, "SYS_PTRACE"},
};

static void write_caps(FILE *out, const char *set, bool last)
{
    const char *comma = "";

    (void)fprintf(out, "\"%s\":[", set);
    for (size_t i = 0; i < KG_ARRAY_LEN(caps); i++) {
        if (CAPS & KG_CAP_BIT(caps[i].bit)) {
            (void)fprintf(out, "%s\"CAP_%s\"", comma, caps[i].name);
            comma = ",";
        }
    }
    (void)fprintf(out, "]%s", last ? "" : ",");
}

static void write_process(FILE *out, const kg_oci_spec_t *spec)
{
    unsigned nofile = spec->limits->nofile;

    (void)fprintf(out,
                  "\"process\":{\"terminal\":false,\"user\":{\"uid\":0,\"gid\":0},"
                  "\"cwd\":\"/workspace\",\"env\":[],\"noNewPrivileges\":true,"
                  "\"args\":[\"/" KG_MASK_INIT
                  "\",\"%s\",\"%u\",\"%u\",\"%u\",\"%u\",\"%u\"],\"capabilities\":{",
                  spec->id, KG_UID_USER, KG_UID_USER, KG_UID_KILLER,
                  KG_INIT_FLAG_PIDNS | KG_INIT_FLAG_HAS_ROOT | KG_INIT_FLAG_FILTER |
                      KG_INIT_FLAG_OWN_ROOT | (spec->guest ? KG_INIT_FLAG_INNER : 0),
                  spec->orphan_s);
    write_caps(out, "bounding", false);
    write_caps(out, "effective", false);
    write_caps(out, "permitted", true);
    (void)fputc('}', out);
    if (nofile > 0) {
        nofile = nofile < NOFILE_LEAST ? NOFILE_LEAST : nofile;
        (void)fprintf(out, ",\"rlimits\":[{\"type\":\"RLIMIT_NOFILE\",\"soft\":%u,\"hard\":%u}]",
                      nofile, nofile);
    }
    (void)fputs("},", out);
}

static void write_tmpfs(FILE *out, const char *where, uint64_t bytes)
{
    (void)fprintf(out,
                  ",{\"destination\":\"%s\",\"type\":\"tmpfs\",\"source\":\"tmpfs\",\"options\":"
                  "[\"nosuid\",\"nodev\",\"mode=1777\",\"size=%llu\"]}",
                  where, (unsigned long long)bytes);
}

static void write_views(FILE *out, const char *run)
{
    char view[OCI_PATH_MAX];
    size_t count;
    const char *const *names = kg_ns_proc_views(&count);

    for (size_t i = 0; i < count; i++) {
        if (kg_format(view, sizeof(view), "%s/.view/%s", run, names[i]) == 0 &&
            access(view, F_OK) == 0) {
            (void)fprintf(out,
                          ",{\"destination\":\"/proc/%s\",\"type\":\"bind\",\"source\":\"%s\","
                          "\"options\":[\"bind\",\"ro\",\"nosuid\",\"nodev\"]}",
                          names[i], view);
        }
    }
}

static void write_bind(FILE *out, const char *from, const char *to)
{
    (void)fprintf(out,
                  ",{\"destination\":\"%s\",\"type\":\"bind\",\"source\":\"%s\",\"options\":"
                  "[\"bind\",\"nosuid\",\"nodev\"]}",
                  to, from);
}

static void write_dev(FILE *out)
{
    (void)fputs(",{\"destination\":\"/dev\",\"type\":\"tmpfs\",\"source\":\"tmpfs\",\"options\":"
                "[\"nosuid\",\"strictatime\",\"mode=755\",\"size=64k\"]},"
                "{\"destination\":\"/dev/pts\",\"type\":\"devpts\",\"source\":\"devpts\","
                "\"options\":[\"nosuid\",\"noexec\",\"newinstance\",\"ptmxmode=0666\","
                "\"mode=0620\"]}",
                out);
}

static void write_mounts(FILE *out, const kg_oci_spec_t *spec)
{
    uint64_t half = kg_ns_tmpfs_bytes(spec->limits);

    (void)fputs("\"mounts\":[{\"destination\":\"/proc\",\"type\":\"proc\",\"source\":\"proc\"}",
                out);
    if (!spec->guest) {
        write_dev(out);
    }
    write_tmpfs(out, "/dev/shm", half);
    if (spec->tmp) {
        write_bind(out, spec->tmp, "/tmp");
    } else {
        write_tmpfs(out, "/tmp", half);
    }
    write_bind(out, spec->run, "/run");
    write_views(out, spec->run);
    (void)fputs("],", out);
}

static void write_paths(FILE *out, const char *name, const char *const *paths, size_t count)
{
    (void)fprintf(out, ",\"%s\":[", name);
    for (size_t i = 0; i < count; i++) {
        (void)fprintf(out, "%s\"%s\"", i ? "," : "", paths[i]);
    }
    (void)fputc(']', out);
}

static void write_maps(FILE *out, const kg_oci_spec_t *spec)
{
    static const char *const kinds[] = {"uid", "gid"};

    for (size_t i = 0; i < KG_ARRAY_LEN(kinds); i++) {
        (void)fprintf(out, ",\"%sMappings\":[{\"containerID\":0,\"hostID\":%u,\"size\":%u}]",
                      kinds[i], spec->base, KG_UID_RANGE);
    }
}

static void write_linux(FILE *out, const kg_oci_spec_t *spec)
{
    size_t count;
    const char *const *paths;

    (void)fputs("\"linux\":{\"namespaces\":[{\"type\":\"user\"},{\"type\":\"mount\"},"
                "{\"type\":\"pid\"},{\"type\":\"network\"},{\"type\":\"ipc\"},{\"type\":\"uts\"}",
                out);
    if (spec->guest) {
        (void)fputc(']', out);
        write_maps(out, spec);
        (void)fputc('}', out);
        return;
    }
    (void)fputs(",{\"type\":\"cgroup\"", out);
    if (spec->cgroup_holder > 0) {
        (void)fprintf(out, ",\"path\":\"/proc/%d/ns/cgroup\"", (int)spec->cgroup_holder);
    }
    (void)fputs("}]", out);
    write_maps(out, spec);
    (void)fprintf(out,
                  ",\"cgroupsPath\":\"%s\",\"sysctl\":{"
                  "\"net.ipv4.ip_unprivileged_port_start\":\"0\","
                  "\"net.ipv4.ping_group_range\":\"0 65534\"}",
                  spec->cgroup);
    paths = kg_ns_proc_masked(&count);
    write_paths(out, "maskedPaths", paths, count);
    paths = kg_ns_proc_fixed(&count);
    write_paths(out, "readonlyPaths", paths, count);
    (void)fputc('}', out);
}

void kg_oci_config(FILE *out, const kg_oci_spec_t *spec)
{
    (void)fprintf(out, "{\"ociVersion\":\"1.0.2\",\"hostname\":\"%s\",\"root\":{\"path\":\"%s\"},",
                  spec->id, spec->root);
    write_process(out, spec);
    write_mounts(out, spec);
    write_linux(out, spec);
    (void)fputs("}\n", out);
}
