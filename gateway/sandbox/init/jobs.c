/* File requests at work: a fork of init each, with the rights that it is to have, so that neither a
 * slow file system nor a full one, neither a huge directory nor a stuck mount holds init up. Its
 * one message is the answer, which init passes on. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "gateway/base/clock.h"
#include "gateway/base/mem.h"
#include "gateway/sandbox/init/init.h"

#define FIRST_FD 3 /* of a job: socket, workspace, home, a watch */
#define KEPT_FDS 4
#define SPARE_FD 16

/* ---- the process ---- */

/* By way of high numbers, so that none overwrites another; everything else is closed. */
static int place_fds(int fds[KEPT_FDS])
{
    int spare[KEPT_FDS];
    for (int i = 0; i < KEPT_FDS; i++) {
        spare[i] = fds[i] >= 0 ? fcntl(fds[i], F_DUPFD_CLOEXEC, SPARE_FD) : -1;
        if (fds[i] >= 0 && spare[i] < 0) {
            return -errno;
        }
    }
    for (int i = 0; i < KEPT_FDS; i++) {
        if (spare[i] < 0) {
            close(FIRST_FD + i);
            fds[i] = -1;
        } else if (dup3(spare[i], FIRST_FD + i, O_CLOEXEC) < 0) {
            return -errno;
        } else {
            fds[i] = FIRST_FD + i;
        }
    }
    return close_range(FIRST_FD + KEPT_FDS, INIT_FD_LAST, 0) < 0 ? -errno : 0;
}

static int become_job(kg_init_t *in, const char *name, int *sock, int *watch_fd, bool root)
{
    int fds[KEPT_FDS] = {*sock, in->workspace_fd, in->home_fd, *watch_fd};
    pid_t parent = getppid();

    (void)prctl(PR_SET_NAME, name);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        return -ECHILD;
    }
    int r = place_fds(fds);
    if (r < 0) {
        return r;
    }
    *sock = fds[0];
    in->workspace_fd = fds[1];
    in->home_fd = fds[2];
    *watch_fd = fds[3];
    r = init_become_for_files(in, root);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* other ids have cleared it */
    return r;
}

/* What may take long ends by itself, so that it leaves nothing half. */
static bool is_long(const kg_ip_path_t *request)
{
    return request->head.verb == KG_IP_RENAME || /* perhaps a copy */
           (request->head.verb == KG_IP_REMOVE && (request->flags & KG_IP_FS_RECURSIVE));
}

static uint64_t own_deadline(const kg_ip_path_t *request)
{
    return is_long(request) && request->cursor > 0 ? kg_now_ns() + request->cursor * KG_NS_PER_MS
                                                   : INIT_NEVER;
}

/* When it is ended from outside, for it is stuck in the kernel. */
static uint64_t deadline(const kg_ip_path_t *request)
{
    uint64_t own_ns = own_deadline(request);
    if (!is_long(request)) {
        return kg_now_ns() + INIT_JOB_DEADLINE_NS;
    }
    return own_ns == INIT_NEVER ? INIT_NEVER : own_ns + INIT_JOB_CLEAR_NS + INIT_JOB_DEADLINE_NS;
}

static _Noreturn void
run_job(kg_init_t *in, const kg_ip_path_t *request, const char *tail, size_t tail_len, int fds[2])
{
    kg_ip_reply_t reply;
    kg_ifiles_t f = {.in = in,
                     .request = request,
                     .watch_fd = fds[1],
                     .deadline_ns = own_deadline(request),
                     .fd = -1};

    size_t size = kg_ip_reply_init(&reply, (kg_ip_verb_t)request->head.verb, request->head.seq);
    f.reply = reply.files;
    kg_ip_paths(tail, tail_len, &f.path, &f.second);
    int r =
        become_job(in, "sandal-files", &fds[0], &f.watch_fd, (request->flags & KG_IP_FS_ROOT) != 0);
    if (r == 0) {
        r = init_files_do(&f);
    }
    if (r < 0) {
        reply.files.wd = f.reply.wd; /* of a move: which side is at fault */
        f.reply = reply.files;
        f.reply.error = r;
        f.tail_len = 0;
        kg_closep(&f.fd);
    }
    f.reply.head.size = (uint32_t)(size + f.tail_len);
    memcpy(in->frame, &f.reply, size);
    memcpy(in->frame + size, f.tail, f.tail_len);
    (void)kg_seq_send(fds[0], in->frame, size + f.tail_len, &f.fd, f.fd >= 0);
    _exit(0);
}

/* ---- temporary files ---- */

static kg_itemp_t *find_temp(const kg_init_t *in, const char *path)
{
    kg_itemp_t *temp = in->temps;
    while (temp && strcmp(temp->path, path) != 0) {
        temp = temp->next;
    }
    return temp;
}

static void forget_temp(kg_init_t *in, const char *path)
{
    for (kg_itemp_t **at = &in->temps; *at; at = &(*at)->next) {
        kg_itemp_t *temp = *at;
        if (strcmp(temp->path, path) == 0) {
            *at = temp->next;
            in->temp_count--;
            free(temp);
            return;
        }
    }
}

static bool keep_temp(kg_init_t *in, const char *path, bool root)
{
    size_t len = strlen(path) + 1;
    kg_itemp_t *temp = malloc(sizeof(*temp) + len);

    if (!temp) {
        return false;
    }
    *temp = (kg_itemp_t){.next = in->temps, .root = root};
    memcpy(temp->path, path, len);
    in->temps = temp;
    in->temp_count++;
    return true;
}

/* Removes those of one kind that nobody is at. */
static void remove_temps(kg_init_t *in, bool root)
{
    int none = -1;
    int watch = -1;
    pid_t pid = fork(); /* nobody waits for it; without room for it they stay */

    if (pid == 0) {
        if (become_job(in, "sandal-files", &none, &watch, root) < 0) {
            _exit(1);
        }
        for (const kg_itemp_t *temp = in->temps; temp; temp = temp->next) {
            if (temp->root == root && !temp->busy) {
                (void)init_files_remove(in, temp->path, 0);
            }
        }
        _exit(0);
    }
    for (kg_itemp_t **at = &in->temps; *at;) {
        kg_itemp_t *temp = *at;
        if (temp->root == root && !temp->busy) {
            *at = temp->next;
            in->temp_count--;
            free(temp);
        } else {
            at = &temp->next;
        }
    }
}

void init_drop_temps(kg_init_t *in)
{
    for (int root = 0; root < 2; root++) {
        for (const kg_itemp_t *temp = in->temps; temp; temp = temp->next) {
            if (temp->root == (root == 1) && !temp->busy) {
                remove_temps(in, root == 1);
                break;
            }
        }
    }
}

/* ---- in init ---- */

/* ret_temp: of PUT_IN_PLACE, what it is about. */
static int check_start(const kg_init_t *in,
                       const kg_ip_path_t *request,
                       const char *path,
                       kg_itemp_t **ret_temp)
{
    bool temporary = request->head.verb == KG_IP_OPEN && (request->flags & KG_IP_FS_TEMPORARY);

    if (in->job_count >= KG_IP_JOBS_MAX || (temporary && in->temp_count >= KG_IP_TEMPS_MAX)) {
        return -EUSERS;
    }
    if (request->head.verb == KG_IP_PUT_IN_PLACE) {
        kg_itemp_t *temp = find_temp(in, path);
        if (!temp || temp->busy) {
            return -ENOENT;
        }
        *ret_temp = temp;
    }
    return 0;
}

static int start(kg_init_t *in,
                 kg_ijob_t *job,
                 const kg_ip_path_t *request,
                 const char *tail,
                 size_t tail_len,
                 int watch_fd)
{
    int pair[2];
    int r = kg_seq_pair(pair);
    if (r < 0) {
        return r;
    }
    pid_t pid = fork();
    if (pid == 0) {
        int fds[2] = {pair[1], watch_fd};
        run_job(in, request, tail, tail_len, fds);
    }
    close(pair[1]);
    if (pid < 0) {
        r = -errno;
        close(pair[0]);
        return r;
    }
    job->pid = pid;
    job->sock = pair[0];
    return 0;
}

void init_job_start(
    kg_init_t *in, const kg_ip_path_t *request, const char *tail, size_t tail_len, int watch_fd)
{
    kg_itemp_t *temp = NULL;
    kg_ijob_t *job = NULL;
    int r = check_start(in, request, tail, &temp);

    if (r == 0) {
        job = calloc(1, sizeof(*job));
        char *path = job && temp ? strdup(tail) : NULL;
        r = job && (path || !temp) ? start(in, job, request, tail, tail_len, watch_fd) : -ENOMEM;
        if (r == 0) {
            job->temp = path;
        } else {
            free(path);
            free(job);
        }
    }
    if (r < 0) {
        init_send_files_error(in, request->head.verb, request->head.seq, r);
        return;
    }
    if (temp) {
        temp->busy = true;
    }
    job->seq = request->head.seq;
    job->verb = request->head.verb;
    job->flags = request->flags;
    job->gateway_number = in->gateway_number;
    job->deadline_ns = deadline(request);
    job->next = in->jobs;
    in->jobs = job;
    in->job_count++;
}

/* A temporary file has come, gone, or got its place. */
static int note_temp(kg_init_t *in, kg_ijob_t *job, const kg_ip_files_t *reply, const char *name)
{
    bool root = (job->flags & KG_IP_FS_ROOT) != 0;

    if (job->verb == KG_IP_OPEN && (job->flags & KG_IP_FS_TEMPORARY) && reply->error == 0) {
        return keep_temp(in, name, root) ? 0 : -ENOMEM;
    }
    if (job->verb == KG_IP_PUT_IN_PLACE) {
        kg_itemp_t *temp = find_temp(in, job->temp);
        if (temp && reply->error != 0) {
            temp->busy = false; /* it may be tried again */
        } else if (temp) {
            forget_temp(in, job->temp);
        }
    }
    return 0;
}

static void answer(kg_init_t *in,
                   kg_ijob_t *job,
                   const kg_ip_reply_t *reply,
                   const char *tail,
                   size_t len,
                   int fds[KG_SEQ_FDS_MAX],
                   size_t fd_count)
{
    int r = note_temp(in, job, &reply->files, tail);

    kg_closep(&job->sock);
    if (job->gateway_number != in->gateway_number) {
        init_drop_temps(in);
    } else if (r < 0) {
        init_send_files_error(in, job->verb, job->seq, r);
    } else {
        init_send_frame(in, in->frame, len, fds, fd_count);
        return;
    }
    for (size_t i = 0; i < fd_count; i++) {
        kg_closep(&fds[i]);
    }
}

static void answer_error(kg_init_t *in, kg_ijob_t *job, int error)
{
    kg_ip_reply_t reply;
    int fds[KG_SEQ_FDS_MAX] = {-1, -1, -1, -1};
    size_t size = kg_ip_reply_init(&reply, (kg_ip_verb_t)job->verb, job->seq);

    reply.files.error = error;
    memcpy(in->frame, &reply, size);
    answer(in, job, &reply, "", size, fds, 0);
}

void init_job_read(kg_init_t *in, kg_ijob_t *job)
{
    kg_ip_reply_t reply;
    const char *tail;
    size_t tail_len;
    size_t len = 0;
    size_t fd_count = 0;
    int fds[KG_SEQ_FDS_MAX] = {-1, -1, -1, -1};

    if (job->sock < 0) {
        return;
    }
    int r = kg_seq_recv(job->sock, in->frame, sizeof(in->frame), &len, fds, &fd_count);
    if (r == -EAGAIN) {
        return;
    }
    if (r == 0) {
        r = kg_ip_reply_decode_tail(in->frame, len, &reply, &tail, &tail_len);
    }
    if (r == 0 && reply.head.verb == job->verb && reply.head.seq == job->seq) {
        answer(in, job, &reply, tail, len, fds, fd_count);
        return;
    }
    for (size_t i = 0; i < fd_count; i++) {
        kg_closep(&fds[i]);
    }
    answer_error(in, job, -EIO);
}

bool init_job_exited(kg_init_t *in, pid_t pid)
{
    for (kg_ijob_t *job = in->jobs; job; job = job->next) {
        if (job->pid == pid) {
            init_job_read(in, job); /* what it said, or that it ended without a word */
            job->pid = 0;
            return true;
        }
    }
    return false;
}

uint64_t init_jobs_step(kg_init_t *in, uint64_t now_ns)
{
    uint64_t next = INIT_NEVER;

    for (kg_ijob_t **at = &in->jobs; *at;) {
        kg_ijob_t *job = *at;
        if (job->pid != 0 && job->sock >= 0 && job->deadline_ns <= now_ns) {
            (void)kill(job->pid,
                       SIGKILL); /* stuck in the kernel it keeps its place until it ends */
            answer_error(in, job, -ETIMEDOUT);
        }
        if (job->pid == 0) {
            *at = job->next;
            in->job_count--;
            kg_closep(&job->sock);
            free(job->temp);
            free(job);
            continue;
        }
        if (job->sock >= 0 && job->deadline_ns < next) {
            next = job->deadline_ns;
        }
        at = &job->next;
    }
    return next;
}
