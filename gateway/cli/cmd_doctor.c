/* cli: `sandald doctor`: starts a keeper of its own over scratch directories, asks it what it
 * found, and says so. Beside a running daemon: other directories, other user ids. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "gateway/base/clock.h"
#include "gateway/base/mem.h"
#include "gateway/base/str.h"
#include "gateway/cli/args.h"
#include "gateway/cli/commands.h"
#include "gateway/cli/doctor.h"
#include "gateway/cli/paths.h"
#include "gateway/sandbox/client.h"

#define SCRATCH_SLOTS 4U
#define ANSWER_MS 60000 /* it tries every launcher first */
#define END_MS 20000
#define TURN_MS 240000 /* for a few others, each as long as both */
#define ROOM_BYTES (UINT64_C(1) << 30)

typedef struct kg_scratch {
    char state[512];
    char runtime[64];
} kg_scratch_t;

/* --- Scratch directories --------------------------------------------------------------------- */

/* On the disk that the daemon would use, if we may. */
static int make_scratch(const kg_config_t *config, kg_scratch_t *ret)
{
    const char *state = config->state_dir;
    const char *run = getenv("XDG_RUNTIME_DIR"); // NOLINT(concurrency-mt-unsafe): one thread

    if (geteuid() == 0) {
        run = "/run";
    }
    if (!run || strlen(run) > 30 || access(run, W_OK) < 0) {
        run = "/tmp";
    }
    if (access(state, W_OK | X_OK) < 0) {
        state = "/tmp";
    }
    if (kg_format(ret->state, sizeof(ret->state), "%s/.doctor-XXXXXX", state) < 0 ||
        kg_format(ret->runtime, sizeof(ret->runtime), "%s/sandal-doctor-XXXXXX", run) < 0) {
        return -ENAMETOOLONG;
    }
    if (!mkdtemp(ret->state)) {
        return -errno;
    }
    if (!mkdtemp(ret->runtime)) {
        int r = -errno;
        (void)rmdir(ret->state);
        return r;
    }
    return chmod(ret->state, 0711) < 0 || chmod(ret->runtime, 0711) < 0 ? -errno : 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    (void)remove(path);
    return 0;
}

static void remove_scratch(const kg_scratch_t *scratch)
{
    const int how = FTW_DEPTH | FTW_PHYS | FTW_MOUNT;
    (void)nftw(scratch->state, remove_one, 16, how);   // NOLINT(concurrency-mt-unsafe)
    (void)nftw(scratch->runtime, remove_one, 16, how); // NOLINT(concurrency-mt-unsafe)
}

/* --- The keeper ------------------------------------------------------------------------------ */

static int ask(int sock, kg_kp_verb_t verb, kg_kp_reply_t *ret)
{
    kg_kp_request_t request;
    uint64_t until_ns = kg_now_ns() + ANSWER_MS * KG_NS_PER_MS;
    size_t size = kg_kp_request_init(&request, verb, 1);

    if (send(sock, &request, size, MSG_NOSIGNAL) < 0) {
        return -errno;
    }
    for (;;) {
        char frame[sizeof(kg_kp_reply_t)];
        struct pollfd poll_fd = {.fd = sock, .events = POLLIN};
        if (poll(&poll_fd, 1, 1000) < 0 && errno != EINTR) {
            return -errno;
        }
        ssize_t n = recv(sock, frame, sizeof(frame), MSG_DONTWAIT);
        if (n == 0) {
            return -EPIPE;
        }
        if (n > 0) {
            int r = kg_kp_reply_decode(frame, (size_t)n, ret);
            return r == 0 && ret->head.verb != (uint16_t)verb ? -EPROTO : r;
        }
        if (errno != EAGAIN && errno != EINTR) {
            return -errno;
        }
        if (kg_now_ns() >= until_ns) {
            return -ETIMEDOUT;
        }
    }
}

static int ask_all(kg_doctor_t *doctor, const kg_config_t *config, int sock)
{
    kg_kp_reply_t reply;
    int r = ask(sock, KG_KP_HELLO, &reply);

    if (r == 0) {
        r = ask(sock, KG_KP_LAUNCHER_TABLE, &reply);
    }
    if (r == 0) {
        kg_doctor_launchers(doctor, &reply.launchers, config->isolation, config->isolation_min);
        r = ask(sock, KG_KP_FEATURE_TABLE, &reply);
    }
    if (r == 0) {
        kg_doctor_features(doctor, &reply.features);
    }
    return r;
}

static const struct timespec nap = {.tv_nsec = 10000000};

/* Ids that the daemon itself doesn't have; low ones, for bwrap takes those above 2^31 for negative.
 */
static unsigned scratch_uids(const kg_config_t *config)
{
    uint64_t count = (uint64_t)SCRATCH_SLOTS * KG_UID_RANGE;
    uint64_t after = config->uid_base + config->uid_count;
    return (unsigned)(config->uid_base >= 2 * count ? config->uid_base - count : after);
}

/* One at a time, for their keepers would have the same ids; as an ordinary user they share none. 0
 * also where there is no place for the lock, or -ETIMEDOUT. */
static int take_turn(int *ret_fd)
{
    uint64_t until_ns = kg_now_ns() + TURN_MS * KG_NS_PER_MS;
    if (geteuid() != 0) {
        return 0;
    }
    (void)mkdir(KG_UID_RANGES_DIR, 0700);
    KG_AUTO_CLOSE int fd =
        open(KG_UID_RANGES_DIR "/doctor", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    while (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (kg_now_ns() >= until_ns) {
            return -ETIMEDOUT;
        }
        nanosleep(&nap, NULL);
    }
    *ret_fd = kg_take_fd(&fd);
    return 0;
}

static void wait_for(pid_t pid)
{
    uint64_t until_ns = kg_now_ns() + END_MS * KG_NS_PER_MS;
    while (waitpid(pid, NULL, WNOHANG) == 0) {
        if (kg_now_ns() >= until_ns) {
            (void)kill(pid, SIGKILL);
        }
        nanosleep(&nap, NULL);
    }
}

static int examine(kg_doctor_t *doctor, const kg_config_t *config, const char *exe_dir)
{
    kg_scratch_t scratch = {0};
    KG_AUTO_FREE char *keeper = kg_path_helper(exe_dir, "sandal-keeper");
    KG_AUTO_FREE char *init = kg_path_helper(exe_dir, "sandal-init");
    KG_AUTO_CLOSE int turn = -1;
    pid_t pid = 0;
    int sock = -1;

    if (!keeper || !init) {
        return -ENOMEM;
    }
    int r = take_turn(&turn);
    r = r ? r : make_scratch(config, &scratch);
    if (r < 0) {
        return r;
    }
    const kg_keeper_private_t opts = {
        .keeper_exe = keeper,
        .init_exe = init,
        .state_dir = scratch.state,
        .runtime_dir = scratch.runtime,
        .uid_base = scratch_uids(config),
        .uid_count = SCRATCH_SLOTS * KG_UID_RANGE,
        .volumes = config->volumes.backend,
        .prepare = true,
    };
    r = kg_keeper_start_private(&opts, &pid, &sock);
    if (r == 0) {
        r = ask_all(doctor, config, sock);
        close(sock);
        wait_for(pid);
    }
    remove_scratch(&scratch);
    return r;
}

/* --- What needs no keeper -------------------------------------------------------------------- */

static void see_host(kg_doctor_t *doctor)
{
    struct utsname host;
    kg_doctor_line_t *line = kg_doctor_add(doctor, KG_FINDING_OK, "host");
    if (line && uname(&host) == 0) {
        (void)snprintf(line->detail, sizeof(line->detail), "%.40s %.80s %.40s, %s", host.sysname,
                       host.release, host.machine,
                       doctor->is_root ? "as root" : "as an ordinary user");
    }
}

static void see_disk(kg_doctor_t *doctor, const kg_config_t *config)
{
    struct statvfs fs;
    char path[512];
    (void)snprintf(path, sizeof(path), "%s", config->state_dir);
    while (statvfs(path, &fs) < 0) { /* what will be made, will be made below what is there */
        char *slash = strrchr(path, '/');
        if (!slash || slash == path) {
            return;
        }
        *slash = '\0';
    }
    uint64_t room = (uint64_t)fs.f_bavail * fs.f_frsize;
    kg_doctor_line_t *line =
        kg_doctor_add(doctor, room < ROOM_BYTES ? KG_FINDING_LIMITED : KG_FINDING_OK, "state_dir");
    if (line) {
        (void)snprintf(line->detail, sizeof(line->detail), "%.180s: %llu MiB free",
                       config->state_dir, (unsigned long long)(room >> 20));
        if (room < ROOM_BYTES) {
            (void)snprintf(line->remedy, sizeof(line->remedy),
                           "name a directory on a disk with more room with --state-dir");
        }
    }
}

static size_t count_entries(const char *path)
{
    size_t count = 0;
    DIR *dir = opendir(path);
    if (!dir) {
        return 0;
    }
    // NOLINTNEXTLINE(concurrency-mt-unsafe): one thread
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
        char file[1024];
        count += entry->d_name[0] != '.' &&
                 kg_format(file, sizeof(file), "%s/%s/template.json", path, entry->d_name) == 0 &&
                 access(file, R_OK) == 0;
    }
    (void)closedir(dir);
    return count;
}

static void see_templates(kg_doctor_t *doctor, const kg_config_t *config)
{
    size_t count = 0;
    for (size_t i = 0; i < config->template_dirs.count; i++) {
        count += count_entries(config->template_dirs.items[i]);
    }
    kg_doctor_line_t *line =
        kg_doctor_add(doctor, count > 0 ? KG_FINDING_OK : KG_FINDING_NO, "templates");
    if (line) {
        (void)snprintf(line->detail, sizeof(line->detail), "%zu found", count);
        if (count == 0) {
            (void)snprintf(line->remedy, sizeof(line->remedy),
                           "name the folder that holds them with --template-dirs");
        }
    }
}

/* --- All of it ------------------------------------------------------------------------------- */

static const char *const SUMMARY =
    "Tries what this host can do for sandboxes and says what to change. Takes the options of "
    "`serve`, and\n--json for programs. Exit status: 0 when sandboxes get an isolation by default, "
    "1 when not.";

static bool take_flag(int *argc, char **argv, const char *flag)
{
    bool found = false;
    int kept = 0;
    for (int i = 0; i < *argc; i++) {
        if (strcmp(argv[i], flag) == 0) {
            found = true;
        } else {
            argv[kept++] = argv[i];
        }
    }
    *argc = kept;
    argv[kept] = NULL;
    return found;
}

static int report(const kg_doctor_t *doctor, bool json)
{
    if (!json) {
        kg_doctor_print(doctor, stdout);
        return doctor->good ? 0 : 1;
    }
    json_t *made = kg_doctor_json(doctor);
    if (made) {
        (void)json_dumpf(made, stdout, JSON_INDENT(2));
        (void)printf("\n");
        json_decref(made);
    }
    return doctor->good && made ? 0 : 1;
}

static int see(const kg_config_t *config, const char *exe_dir, bool json)
{
    kg_doctor_t doctor = {.is_root = geteuid() == 0};
    see_host(&doctor);
    see_disk(&doctor, config);
    see_templates(&doctor, config);
    kg_doctor_overlay(&doctor);
    kg_doctor_checkpoint(&doctor);
    int r = examine(&doctor, config, exe_dir);
    if (r < 0) {
        kg_doctor_line_t *line = kg_doctor_add(&doctor, KG_FINDING_NO, "keeper");
        if (line) {
            (void)snprintf(line->detail, sizeof(line->detail), "it did not answer: %s",
                           strerrordesc_np(-r));
        }
        doctor.good = false;
    }
    return report(&doctor, json);
}

int kg_command_doctor(int argc, char **argv)
{
    kg_err_t err = {0};
    kg_config_t config;
    bool json = take_flag(&argc, argv, "--json");
    KG_AUTO_FREE char *exe_dir = kg_path_exe_dir();
    int r = kg_config_init(&config, &err);
    int status = 0;

    if (r == 0 && exe_dir) {
        r = kg_args_settle(argc, argv, SUMMARY, exe_dir, &config, &err);
        status = r == 0 ? see(&config, exe_dir, json) : 0; /* r 1: help */
    }
    kg_config_fini(&config);
    if (r < 0) {
        kg_args_complain(&err);
        return 2;
    }
    return status;
}
