/* The runtime as a program: found, run, asked for its reasons. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gateway/base/str.h"
#include "gateway/sandbox/fsutil.h"
#include "gateway/sandbox/oci.h"
#include "gateway/sandbox/proctree.h"

#define WORDS_MAX 24
#define LOG_TAIL 4096
#define FIRST_SPARE_FD 10
#define RUN_MS 30000 /* a command of the runtime; what takes longer hangs */
#define DEATH_MS 5000

const char *kg_oci_find(const kg_oci_t *oci, char ret[OCI_PATH_MAX])
{
    static const char *const places[] = {"/usr/bin", "/usr/sbin", "/usr/local/bin",
                                         "/usr/local/sbin"};

    for (size_t i = 0; i < KG_ARRAY_LEN(places); i++) {
        if (kg_format(ret, OCI_PATH_MAX, "%s/%s", places[i], oci->program) == 0 &&
            access(ret, X_OK) == 0) {
            return ret;
        }
    }
    return NULL;
}

static int path_of(const kg_host_t *host, const char *id, const char *leaf, char *ret, size_t cap)
{
    return kg_format(ret, cap, "%s/" OCI_DIR "/%s/%s", host->runtime_dir, id, leaf);
}

/* --- Its last words --------------------------------------------------------------------------- */

/* The message of the last line of a log, which is msg="…" with runc, "msg":"…" or "head] …" with
 * runsc. In place. */
static char *last_words(char *text)
{
    static const char *const heads[] = {"msg=\"", "\"msg\":\""};
    size_t len = strlen(text);
    while (len > 0 && text[len - 1] == '\n') {
        text[--len] = '\0';
    }
    char *line = strrchr(text, '\n');
    line = line ? line + 1 : text;
    char *msg = NULL;
    for (size_t i = 0; i < KG_ARRAY_LEN(heads) && !msg; i++) {
        msg = strstr(line, heads[i]);
        msg = msg ? msg + strlen(heads[i]) : NULL;
    }
    if (!msg) {
        char *head = strstr(line, "] ");
        return head ? head + 2 : line;
    }
    char *to = msg;
    for (char *at = msg; *at && *at != '"'; at++) {
        if (*at == '\\' && at[1]) {
            at++;
        }
        *to++ = *at;
    }
    *to = '\0';
    return msg;
}

static void
tell_reason(const kg_host_t *host, const kg_oci_t *oci, const char *id, int status, kg_err_t *err)
{
    char path[OCI_PATH_MAX];
    char text[LOG_TAIL + 1];
    ssize_t n = -1;

    if (path_of(host, id, OCI_LOG, path, sizeof(path)) == 0) {
        KG_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
        struct stat st;
        off_t from =
            fd >= 0 && fstat(fd, &st) == 0 && st.st_size > LOG_TAIL ? st.st_size - LOG_TAIL : 0;
        n = fd < 0 ? -1 : pread(fd, text, LOG_TAIL, from);
    }
    text[n > 0 ? n : 0] = '\0';
    const char *words = last_words(text);
    if (words[0]) {
        (void)kg_err_set(err, KG_ERR_ISOLATION_UNAVAILABLE, "%s: %.300s", oci->program, words);
        return;
    }
    (void)kg_err_set(err, KG_ERR_ISOLATION_UNAVAILABLE, "%s failed without a word (%s %d)",
                     oci->program, WIFSIGNALED(status) ? "signal" : "status",
                     WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

/* --- Running it ------------------------------------------------------------------------------- */

/* In the child. */
static _Noreturn void exec_program(const char *program, const char *const *argv, int pass, int as)
{
    char *env[] = {(char[]){"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, NULL};
    char *copy[WORDS_MAX];
    sigset_t none;

    for (size_t i = 0; i < WORDS_MAX; i++) {
        copy[i] = argv[i] ? strdup(argv[i]) : NULL;
        if (!copy[i]) {
            break;
        }
    }
    /* A worker that is ended half-way takes it along; what it had made goes by kg_oci_forget. */
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigemptyset(&none);
    (void)pthread_sigmask(SIG_SETMASK, &none, NULL);
    (void)signal(SIGPIPE, SIG_DFL);
    (void)umask(022);
    int spare = pass < 0 ? -1 : fcntl(pass, F_DUPFD_CLOEXEC, FIRST_SPARE_FD);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0 && dup2(null, 0) >= 0 && dup2(null, 1) >= 0 && dup2(null, 2) >= 0 &&
        (spare < 0 || dup2(spare, as) >= 0) && chdir("/") == 0) {
        execve(program, copy, env);
    }
    _exit(127);
}

int kg_oci_run(const kg_host_t *host,
               const kg_oci_t *oci,
               const char *id,
               const char *const *words,
               int pass,
               bool in_groups,
               kg_err_t *err)
{
    char program[OCI_PATH_MAX];
    char state[OCI_PATH_MAX];
    char log[OCI_PATH_MAX];
    const char *argv[WORDS_MAX] = {oci->program, "--root", state, "--log", log};
    size_t count = 5;

    if (!kg_oci_find(oci, program)) {
        return kg_err_set(err, KG_ERR_ISOLATION_UNAVAILABLE, "there is no %s (package %s)",
                          oci->program, oci->program);
    }
    int r = path_of(host, id, OCI_STATE, state, sizeof(state));
    if (r == 0) {
        r = path_of(host, id, OCI_LOG, log, sizeof(log));
    }
    for (const char *const *flag = oci->flags; *flag && count < WORDS_MAX - 2; flag++) {
        argv[count++] = *flag;
    }
    for (; *words && count < WORDS_MAX - 2; words++) {
        argv[count++] = *words;
    }
    argv[count] = id;
    pid_t pid = r < 0 ? -1 : fork();
    if (pid == 0) {
        if (in_groups && kg_cgroup_enter(&host->cgroups, id) < 0) {
            _exit(126);
        }
        exec_program(program, argv, pass, oci->fd);
    }
    if (pid < 0) {
        return kg_err_set(err, KG_ERR_INTERNAL, "%s can't be started: %s", oci->program,
                          strerrordesc_np(r < 0 ? -r : errno));
    }
    int status = -1;
    r = kg_child_wait(pid, RUN_MS, &status);
    if (r == -ETIMEDOUT) {
        return kg_err_set(err, KG_ERR_ISOLATION_UNAVAILABLE, "%s was killed: not done in %d s",
                          oci->program, RUN_MS / 1000);
    }
    if (r < 0 || status != 0) {
        tell_reason(host, oci, id, status, err);
        return -kg_err_errno(KG_ERR_ISOLATION_UNAVAILABLE);
    }
    return 0;
}

int kg_oci_forget(const kg_host_t *host, const kg_oci_t *oci, const char *id)
{
    static const char *const words[] = {"delete", "--force", NULL};
    char program[OCI_PATH_MAX];
    char state[OCI_PATH_MAX];
    kg_err_t ignored = {0};
    KG_AUTO_CLOSE int dir =
        openat(host->runtime_fd, OCI_DIR, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (dir < 0 || path_of(host, id, OCI_STATE, state, sizeof(state)) < 0) {
        return errno == ENOENT ? 0 : -errno;
    }
    if (access(state, F_OK) == 0 && kg_oci_find(oci, program)) {
        (void)kg_oci_run(host, oci, id, words, -1, false, &ignored); /* its groups, mostly */
    }
    return kg_fs_remove_tree(dir, id);
}

static int read_pid(const char *path, pid_t *ret_pid)
{
    char text[16] = "";
    uint64_t pid;
    KG_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0) {
        return -ECHILD;
    }
    text[strcspn(text, "\n")] = '\0';
    if (kg_parse_u64(text, 2, INT32_MAX, &pid) < 0) {
        return -ECHILD;
    }
    *ret_pid = (pid_t)pid;
    return 0;
}

int kg_oci_start(const kg_host_t *host,
                 const kg_oci_t *oci,
                 const char *id,
                 int pass,
                 bool in_groups,
                 pid_t *ret_pid,
                 kg_err_t *err)
{
    char bundle[OCI_PATH_MAX];
    char pid_file[OCI_PATH_MAX];
    const char *words[WORDS_MAX] = {"run", "--detach", "--bundle", bundle, "--pid-file", pid_file};
    size_t count = 6;

    int r = kg_format(bundle, sizeof(bundle), "%s/" OCI_DIR "/%s", host->runtime_dir, id);
    if (r == 0) {
        r = kg_format(pid_file, sizeof(pid_file), "%s/" OCI_PID, bundle);
    }
    if (r < 0) {
        return kg_err_set(err, KG_ERR_INTERNAL, "the bundle: %s", strerrordesc_np(-r));
    }
    for (const char *const *word = oci->run_words; *word && count < WORDS_MAX - 1; word++) {
        words[count++] = *word;
    }
    r = kg_oci_run(host, oci, id, words, pass, in_groups, err);
    if (r == 0 && read_pid(pid_file, ret_pid) < 0) {
        r = kg_err_set(err, KG_ERR_INTERNAL, "%s has not said which process it started",
                       oci->program);
    }
    return r;
}

/* Until it is dead: a runtime that is asked to delete what lives looks only ten times a second. */
void kg_oci_end(pid_t pid)
{
    if (pid <= 0) {
        return;
    }
    KG_AUTO_CLOSE int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    (void)kill(pid, SIGKILL);
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    (void)poll(&poll_fd, fd < 0 ? 0 : 1, fd < 0 ? 0 : DEATH_MS);
}
